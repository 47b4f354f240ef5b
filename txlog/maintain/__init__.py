"""Verbs that look after a table: larger files, their statistics, the way back to a version."""
