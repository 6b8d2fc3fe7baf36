"""The exit codes of `fope-lab`."""

DONE, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
