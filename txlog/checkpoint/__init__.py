"""Checkpoints and `_last_checkpoint`: reading and writing.

Rules: the Delta protocol, "Checkpoints" and "Last Checkpoint File".
"""
