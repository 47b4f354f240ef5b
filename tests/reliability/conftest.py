"""Fixtures of the tests of this folder."""

from tests.clocks import store_keeps_pace

__all__ = ["store_keeps_pace"]
