"""Types and schemas: Delta's JSON on one side, Arrow on the other. Pure.

Rules: the Delta protocol, "Schema Serialization Format" and "Column Mapping".
"""
