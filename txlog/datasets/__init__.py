"""Data sets for training: numbered commits, training sets by tags, lineage, differences."""
