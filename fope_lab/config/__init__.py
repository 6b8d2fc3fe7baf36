"""How a sweep file is read: the YAML document with its lines, and what is wrong with it."""
