"""Pure functions of numbers: intervals, tests over seeds, decisions, power."""
