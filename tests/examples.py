"""How many examples Hypothesis tests take: a fifth of them, unless the profile `thorough` is on."""

from hypothesis import settings


def examples(number: int) -> int:
    """Return the profile's share of a test's examples: all of them with `thorough`."""
    return max(5, number * settings().max_examples // 100)
