"""The evaluations: one file, or one folder, for each kind of stage that measures something.

A file holds a frozen dataclass of options, which a section of a sweep file fills, with `metrics()`
and `run(context)`. `STAGE_TYPES` (stages/base.py) finds every file here. Importing this package and
its evaluations imports no torch: `run` does.
"""
