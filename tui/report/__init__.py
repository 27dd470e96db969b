"""The report. In: an Advice with a Result, or an answer about a graph. Out: one HTML page that needs nothing else."""

from .graph import GraphReport, graph_report_html
from .page import ReportData, report_html

__all__ = ["GraphReport", "ReportData", "graph_report_html", "report_html"]
