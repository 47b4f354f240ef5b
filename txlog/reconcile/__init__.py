"""Reconciliation in columns: rows of many log files become one state. Pure.

Rules: the Delta protocol, "Action Reconciliation"; spec/reconcile.md, REC-1 to REC-8.
"""
