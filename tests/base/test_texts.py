"""Tests of txlog.base.texts."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.base.texts import (
    number_or_name,
    runs_of,
    runs_text,
    version_of,
    visible,
    without_secrets,
    without_secrets_within,
)


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
        for part in filter(None, runs_text(runs_of(sorted(numbers)), most=99).split(", "))
        for ends in [part.split(" to ")]
        for number in range(int(ends[0]), int(ends[-1]) + 1)
    ]
    assert named == sorted(numbers)


def test_runs_beyond_the_most_are_counted() -> None:
    assert runs_text(runs_of([1, 2, 3, 7, 9, 10]), most=2) == "1 to 3, 7 and 2 more"


def test_a_run_may_have_any_length() -> None:
    runs = [range(1), range(2, 2**63), range(2**63 + 1, 2**64)]
    assert runs_text(runs, most=2) == f"0, 2 to {2**63 - 1} and {2**63 - 1} more"


SIGNS = "abcXYZ019-_.~!$+*%é"
NAMES = st.text("abcXYZ019-_.", min_size=1, max_size=8)
SECRETS = st.text(SIGNS, min_size=3, max_size=12).map(lambda text: f"Q{text}Q")
SCHEMES = st.sampled_from(["s3", "s3a", "gs", "http", "ftp", "jdbc:postgresql", "zip::s3", "abfss"])


@st.composite
def secret_uris(draw: st.DrawFn) -> tuple[str, str, list[str]]:
    """Return a URI, what messages may show of it, and the secrets in it."""
    scheme, host = draw(SCHEMES), draw(NAMES)
    path = "/".join(draw(st.lists(NAMES, max_size=3)))
    user, word = draw(st.none() | SECRETS), draw(st.none() | SECRETS | SECRETS.map("a/b{}".format))
    values = draw(st.dictionaries(NAMES, SECRETS, max_size=3))
    secrets = [one for one in (word, *values.values()) if one]
    given = shown = ""
    if user is not None or word is not None:
        given, shown = f"{user or 'me'}@", "…@"
        if word is not None:
            given = f"{user or 'me'}:{word}@"
        elif scheme == "abfss":
            shown = given  # It is a container.
    end = f"{host}/{path}"
    query = "&".join(f"{name}={value}" for name, value in values.items())
    hidden = "&".join(f"{name}=…" for name in values)
    mark = "?" if values else ""
    uri = f"{scheme}://{given}{end}{mark}{query}"
    return uri, f"{scheme}://{shown}{end}{mark}{hidden}", secrets


@given(secret_uris())
def test_no_message_shows_the_secrets_of_a_uri(example: tuple[str, str, list[str]]) -> None:
    uri, shown, _ = example
    assert without_secrets(uri) == without_secrets(shown) == shown


@given(st.lists(secret_uris(), min_size=1, max_size=2))
def test_a_sentence_shows_no_secrets_and_loses_nothing_else(
    examples: list[tuple[str, str, list[str]]],
) -> None:
    for form in ("{!r} is no table: a=b&c=d, x@y", '"{}" is', "({}). Use more", "`{}`", "{}"):
        said = " and ".join(form.format(uri) for uri, _, _ in examples)
        shown = without_secrets_within(said)
        assert not [one for _, _, secrets in examples for one in secrets if one in shown]
        if form != "{}":
            kept = [form.format(text) for _, text, _ in examples]
            assert [one for one in kept if one.rstrip("~!$+*%é") not in shown] == []


@given(st.text("ab/?&=@:.'\" ", max_size=20).filter(lambda text: "://" not in text))
def test_a_path_has_no_secrets(path: str) -> None:
    assert without_secrets(path) == without_secrets_within(path) == path
    assert without_secrets(f"file:///{path}") == f"file:///{path}"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://KEY:a/b+c@bucket/t", "s3://…@bucket/t"),
        ("http://u:p?q@host/t?k=v", "http://…@host/t?k=…"),
        ("http://u:p@q@host/t", "http://…@host/t"),
        ("http://host:8080/day@5", "http://host:8080/day@5"),
        ("s3://bucket/a&b=c/day@5", "s3://bucket/a&b=c/day@5"),
        ("file://u:p@host/t", "file://…@host/t"),
        ("abfss://container@account.dfs/t?sig=x", "abfss://container@account.dfs/t?sig=…"),
        ("abfss://user:word@account.dfs/t", "abfss://…@account.dfs/t"),
    ],
)
def test_secrets_of_unusual_uris(uri: str, shown: str) -> None:
    assert without_secrets(uri) == shown
    for form in ("'{}' is no table", '("{}")', "it is {}, and so"):
        assert without_secrets_within(form.format(uri)) == form.format(shown)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("s3://AKIA:/QsecretQ@bucket/t", "s3://…@bucket/t"),
        ("s3://AKIA:12/QsecretQ@bucket/t", "s3://…@bucket/t"),
        ("simplecache::gs://u:7/QsecretQ@b", "simplecache::gs://…@b"),
        ("ftp://u:/QsecretQ@h/t", "ftp://…@h/t"),
        ("hdfs://name:8020/u@x", "hdfs://name:8020/u@x"),
        ("http://h:80/zip::s3://u:p@b", "http://h:80/zip::s3://…@b"),
        ("/data/mirror/x://u@h/t?a=b", "/data/mirror/x://u@h/t?a=b"),
        ("mirror/x://u@h/t", "mirror/x://u@h/t"),
    ],
)
def test_a_password_may_begin_like_a_port_and_a_path_may_look_like_a_uri(
    uri: str, shown: str
) -> None:
    assert without_secrets(uri) == shown
    assert "QsecretQ" not in without_secrets_within(f"cannot open {uri!r}, or {uri}. Try again")


def test_what_steers_a_terminal_is_visible() -> None:
    for code in range(0x11000):
        sign = chr(code)
        steers = unicodedata.category(sign) in (
            "Cc",
            "Zl",
            "Zp",
            "Cs",
        ) or unicodedata.bidirectional(sign) in (
            "LRE",
            "RLE",
            "PDF",
            "LRO",
            "RLO",
            "LRI",
            "RLI",
            "FSI",
            "PDI",
        )
        if (steers and sign != "\n") or sign in "\u200e\u200f\u061c\ufeff":
            assert sign not in visible(f"a{sign}b"), hex(code)
    assert visible("é\nñ 漢") == "é\nñ 漢"
