"""The exit codes of `fope-lab`, and of `fope-lab run` on a cluster."""

OK, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
