"""The commands of `fope-lab`, a module each: HELP, `add_arguments(parser)` and `run(options)`."""
