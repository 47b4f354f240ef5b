"""The number of examples of Hypothesis tests: a fifth, or all with the profile `thorough`."""

from hypothesis import settings


def examples(number: int) -> int:
    """Return the profile's share of a test's examples: all of them with `thorough`."""
    return max(2, number * settings().max_examples // 100)
