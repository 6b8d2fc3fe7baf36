"""`fope-lab store`: look into the folder that holds all stages, and look after it."""

HELP = "list, show, check and remove what a store holds"
ACTIONS = ("list", "show", "verify", "prune")
"""The names of the actions and of their modules here, in the order of `--help`."""
