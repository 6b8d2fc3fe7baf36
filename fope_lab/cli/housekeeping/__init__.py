"""What people do with a store beside running sweeps: look into it, and tidy it.

    known_stages.py  the stages of a store, the names that sweeps gave them, which need which
    contents.py      all stages with states, sizes and ages, and all that is known of one
    stage_log.py     what a stage's attempts noted
    model_origin.py  how a stage's model came about, for the card of an export
    prune.py         what nothing refers to, and how it is removed

Nothing here imports torch, ray or mlflow, so that its commands answer at once.
"""
