"""The report. In: an Advice with a run. Out: one HTML page that needs nothing else."""

from .page import ReportData, report_html

__all__ = ["ReportData", "report_html"]
