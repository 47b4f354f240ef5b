"""Rows by the values of key columns: runs map keys to positions, pages hold the rows."""
