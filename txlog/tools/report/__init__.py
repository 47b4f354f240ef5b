"""Reports on a table: one page that gives an overview.

from txlog.tools.report import report

report(table).save("report.html")  # A notebook shows report(table).
"""

from txlog.tools.report.page import Report, report

__all__ = ["Report", "report"]
