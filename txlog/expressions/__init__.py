"""Predicates: SQL text or `col()` → a tree → Arrow. Pure."""
