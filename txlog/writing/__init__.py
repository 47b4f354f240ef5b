"""Data files and the verbs that change a table."""
