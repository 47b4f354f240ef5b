"""Types and schemas, converted between Delta's JSON and Arrow. Pure.

Rules: the Delta protocol, "Schema Serialization Format" and "Column Mapping".
"""
