"""Owns: comparisons, sweeps, and tables and figures of finished runs. May import: metrics, display, errors, files,
optional, options, protocol, ranges, study.
"""

from cantons.reporting.collect import Group, Run, collect
from cantons.reporting.comparison import Comparison, compare, read_comparison, report
from cantons.reporting.page import write_report
from cantons.reporting.table import cells, comparison_rows
from cantons.reporting.tried import Sweep, sweep

__all__ = ["Comparison", "Group", "Run", "Sweep", "cells", "collect", "compare", "comparison_rows", "read_comparison",
           "report", "sweep", "write_report"]
