"""How the command `fope-lab` ends."""

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
