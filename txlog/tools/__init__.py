"""Tools for people: the command line, pages of tables, reports."""
