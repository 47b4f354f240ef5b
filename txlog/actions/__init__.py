"""The records of the log: Pydantic models, columns, NDJSON. Pure.

Rules: the Delta protocol, "Actions" and "Action Reconciliation".
"""
