"""The codes with which `fope-lab` exits."""

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
