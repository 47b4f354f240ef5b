"""ACID tables for PySpark and Arrow: the Delta transaction log in pure Python."""
