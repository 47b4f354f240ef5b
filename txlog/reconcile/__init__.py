"""Columnar replay: rows of many log files → one state. Pure.

Rules: the Delta protocol, "Action Reconciliation"; spec/reconcile.md, REC-1 to REC-8.
"""
