"""The commands of `fope-lab`, a module each: HELP, ARGUMENTS and `run(options)`."""
