"""How answers are read off a model: shared by the evaluations, and imported by their runs."""
