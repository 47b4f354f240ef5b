"""Rows become data files, and files become `add` actions.

This room knows neither commits nor verbs.
"""
