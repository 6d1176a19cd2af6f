"""A report on a model of a table: how its samples differ from data, beside how data differ from data."""

from sddm.report.measured import LEAST_ROWS, MOST_ROWS, Measured, measured, of_table, target_of
from sddm.report.page import ENDINGS, write_report

__all__ = ["ENDINGS", "LEAST_ROWS", "MOST_ROWS", "Measured", "measured", "of_table", "target_of", "write_report"]
