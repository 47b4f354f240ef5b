"""Write rows as data files, and describe the files as `add` actions.

This package uses neither commits nor verbs.
"""
