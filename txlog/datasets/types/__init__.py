"""The types of data sets, and their registry."""
