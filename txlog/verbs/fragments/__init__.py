"""Fragments that workers write or change, and one driver commits."""
