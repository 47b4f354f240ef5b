"""Checkpoints and `_last_checkpoint`: reading and writing."""
