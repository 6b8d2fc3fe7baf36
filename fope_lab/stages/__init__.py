"""The kinds of stages that train or prepare data, and what all kinds have.

A kind is one frozen dataclass: its fields, its `version`, and its `entry_point`, the function that
does its work, named as "module:function" so that reading a sweep imports neither torch nor ray.
Raise `version` when the same configuration would give other numbers than before: old stages keep
their keys, and the work is done again under new ones. The kinds that measure are in
`fope_lab/evaluation/`.
"""
