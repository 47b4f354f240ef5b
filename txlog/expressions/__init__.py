"""Predicates: SQL text or `col()` become a tree, which is evaluated over Arrow columns. Pure."""
