"""From a sweep file to a plan: `load_sweep` reads and checks it, `plan` says what is left to do.

Nothing here imports torch or ray, so that `validate` and `plan` answer at once.
"""

from fope_lab.config.problems import Problem, SweepError
from fope_lab.sweep.plan import Plan, plan
from fope_lab.sweep.spec import Sweep, load_sweep, parse_sweep

__all__ = ["Plan", "Problem", "Sweep", "SweepError", "load_sweep", "parse_sweep", "plan"]
