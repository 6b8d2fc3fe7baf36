"""How answers are read off a model, shared by the evaluations.

batches, prompting and scored_answers are free of torch; the others are imported inside `run` only.
"""
