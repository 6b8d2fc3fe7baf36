"""What all else stands on: sweep files with their lines and what is wrong with them, plug-ins,
files that are written whole or not at all, and what this machine and known devices are."""
