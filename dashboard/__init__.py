"""The dashboard will live here. Until then a report is a file: ``tracekit analyze RUN --html report.html``."""
