"""The report. In: an Advice, with a Result to draw and perhaps a sweep. Out: one HTML page that needs nothing else."""

from .page import Report, report_html

__all__ = ["Report", "report_html"]
