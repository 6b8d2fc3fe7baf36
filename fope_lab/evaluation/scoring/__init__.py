"""How answers are read off a model, shared by the evaluations.

batches is free of torch; the others are imported inside `run` only.
"""
