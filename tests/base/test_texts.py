"""Tests of txlog.base.texts."""

from __future__ import annotations

import pytest

from txlog.base.texts import number_or_name, version_of


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
