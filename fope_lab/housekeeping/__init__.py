"""What people do with a store beside running sweeps: look into it, tidy it, stop what runs on it.

    known_stages.py  the stages of a store, with the names that sweeps gave them
    stage_log.py     what a stage's attempts noted
    contents.py      all stages with their states, sizes and ages
    references.py    which stages refer to which
    stage_details.py all that is known of one stage
    model_origin.py  how a stage's model came about, for the card of an export
    prune.py         what nothing refers to, and how it is removed
    wording.py       moments, ages and sizes as text

Nothing here imports torch, ray or mlflow, so that its commands answer at once.
"""
