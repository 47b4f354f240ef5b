"""Reconciliation in columns: combine the rows of many log files into one state. Pure.

Rules: the Delta protocol, "Action Reconciliation"; spec/reconcile.md, REC-1 to REC-8.
"""
