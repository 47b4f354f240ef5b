"""Adds → Lance-style fragments; deletion vectors. Pure."""
