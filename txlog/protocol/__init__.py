"""Table features, properties, and who may read or write. Pure.

Rules: the Delta protocol, "Protocol Evolution", "Table Features" and "Valid Feature Names".
"""
