"""Runs the command line as `python -m fope_lab.cli`."""

import sys

from fope_lab.cli import main

sys.exit(main())
