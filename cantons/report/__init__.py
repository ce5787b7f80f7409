"""Owns: tables and figures of finished runs. May import: metrics, errors, files, study."""

from cantons.report.collect import Group, Run, collect
from cantons.report.page import write_report
from cantons.report.table import cells, comparison_rows

__all__ = ["Group", "Run", "cells", "collect", "comparison_rows", "write_report"]
