"""Numbers that only choose a way: how much is done at a time, or from which size on otherwise.

`NAME: Threshold = 64` declares one. Every whole number from 1 on gives the same rows and the same
errors. tests/base/test_thresholds.py finds the declarations and gives them other values. A number
that guards (above it, something is refused), a number of a format, and a time are no thresholds.
"""

from __future__ import annotations

from typing import TypeAlias

Threshold: TypeAlias = int
