"""Tests of txlog.base.texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.base.texts import number_or_name, runs_text, version_of


@pytest.mark.parametrize(
    ("text", "number", "version"),
    [
        ("7", 7, 7),
        ("007", 7, 7),
        ("9" * 18, 10**18 - 1, 10**18 - 1),
        ("9" * 200, "9" * 200, 10**200 - 1),
        ("9" * 5000, "9" * 5000, "9" * 5000),
        ("\u0667", "\u0667", "\u0667"),
        ("-1", "-1", "-1"),
        ("name", "name", "name"),
        ("", "", ""),
    ],
)
def test_texts_of_digits_are_numbers(text: str, number: int | str, version: int | str) -> None:
    assert number_or_name(text) == number
    assert version_of(text) == version


def test_no_text_is_no_version() -> None:
    assert version_of(None) is None


@given(st.sets(st.integers(0, 30)))
def test_runs_name_each_number_once(numbers: set[int]) -> None:
    named = [
        number
        for part in filter(None, runs_text(sorted(numbers), most=99).split(", "))
        for ends in [part.split(" to ")]
        for number in range(int(ends[0]), int(ends[-1]) + 1)
    ]
    assert named == sorted(numbers)


def test_runs_beyond_the_most_are_counted() -> None:
    assert runs_text([1, 2, 3, 7, 9, 10], most=2) == "1 to 3, 7 and 2 more"
