"""The commands of `fope-lab`, a module per subject, which declares its COMMANDS."""
