"""The report. In: an Advice with a Result, or an answer about a graph. Out: one HTML page that needs nothing else."""

from .graph import GraphReport, graph_report_html
from .page import Report, report_html

__all__ = ["GraphReport", "Report", "graph_report_html", "report_html"]
