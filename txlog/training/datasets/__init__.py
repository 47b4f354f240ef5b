"""Data sets for training: numbered commits, training sets by tags, lineage, differences.

One folder of Delta tables and files holds everything; any number of processes may use it at once.
Rules: spec/datasets.md.
"""
