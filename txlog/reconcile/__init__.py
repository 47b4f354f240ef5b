"""Columnar replay: rows of many log files → one state. Pure."""
