"""Synthetic tasks: generated prompts with known answers, to train on and to evaluate."""
