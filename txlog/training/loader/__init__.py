"""Batches for training, straight from a version of a table, in the order of spec/loader.md."""
