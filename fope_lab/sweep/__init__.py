"""From a sweep file to a plan: `load_sweep` reads and checks it, `plan` says what is left to do.

Nothing here imports torch or ray, so `validate` and `plan` answer at once.
"""

from fope_lab.config.problems import Problem, SweepError
from fope_lab.sweep.graph import Sweep
from fope_lab.sweep.load import load_sweep, parse_sweep
from fope_lab.sweep.plan import Plan, plan

__all__ = ["Plan", "Problem", "Sweep", "SweepError", "load_sweep", "parse_sweep", "plan"]
