"""How answers are read off a model, shared by the evaluations.

correct_tokens, exact_match, generating, hidden_states, loglikelihood and shared_prefix import torch
and are imported inside `run` only. batches, intervals, prompting and scored_answers are free of it.
"""
