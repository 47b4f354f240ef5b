"""Accepted regular expressions mean the same in Java, in Python and in RE2."""

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from txlog.base.errors import InvalidInputError
from txlog.expressions.regex import REGEXES, java_regex
from txlog.expressions.signatures import compute_call

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATOMS = st.sampled_from(
    [
        "a", "b", "K", ".", "[ab]", "[^a]", "[a-c1-3]", "[^\\s]", "\\d", "\\W", "\\S", "\\.", "-",
        "é", "\\n", "[.+*]", "[x\\-]", "\\r", "1",
    ]
)  # fmt: skip
REPEATS = st.sampled_from(["", "", "", "+", "*", "?", "+?", "{2}", "{1,2}", "*?"])
PATTERNS = st.recursive(
    st.lists(st.tuples(ATOMS, REPEATS).map("".join), min_size=1, max_size=3).map("".join),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, REPEATS).map(lambda pair: f"({pair[0]}){pair[1]}"),
        st.tuples(inner, inner).map("".join),
        inner.map("(?:{})".format),
    ),
    max_leaves=4,
)
WHOLE = st.tuples(
    st.sampled_from(["", "", "^", "(?i)"]), PATTERNS, st.sampled_from(["", "", "$"])
).map("".join)
TEXTS = st.text(st.sampled_from("abcABKk1- .x\n\r\u2028é\u212a\U0001f600"), max_size=6)


def taken(pattern: str) -> bool:
    try:
        java_regex("rlike", pattern)
    except InvalidInputError:
        return False
    return True


@settings(max_examples=examples(300))
@given(WHOLE.filter(taken), st.lists(TEXTS, max_size=12))
def test_two_engines_find_the_same(pattern: str, texts: list[str]) -> None:
    regex = java_regex("rlike", pattern)
    values = pa.array(texts, pa.string())
    found = [re.search(regex.python, text, re.ASCII) for text in texts]
    assert compute_call(REGEXES["rlike"], [values, pa.scalar(pattern)], pa.bool_()).to_pylist() == [
        one is not None for one in found
    ]
    if not regex.has_end:
        plain = re.sub(r"(?<!\\)\((?!\?)", "(?:", regex.re2)
        first = pc.extract_regex(values, f"(?P<whole>{plain})").to_pylist()
        assert [one and one["whole"] for one in first] == [one and one[0] for one in found]


@pytest.mark.slow
@pytest.mark.spark
def test_java_finds_the_same(spark: "SparkSession") -> None:
    from hypothesis import HealthCheck, Phase

    patterns: dict[str, None] = {}
    texts: dict[str, None] = {}

    @settings(
        max_examples=60, derandomize=True, phases=[Phase.generate], database=None,
        suppress_health_check=list(HealthCheck), deadline=None,
    )  # fmt: skip
    @given(WHOLE.filter(taken), TEXTS)
    def collect(pattern: str, text: str) -> None:
        patterns[pattern] = None
        texts[text] = None

    collect()
    values = pa.table({"s": [*texts, "a\r\n", "b\n", "K\u2028"]})
    columns = [
        column
        for pattern in patterns
        for quoted in ["'" + pattern.replace("\\", "\\\\") + "'"]
        for column in (f"s RLIKE {quoted}", f"regexp_substr(s, {quoted})")
    ]
    frame = spark.createDataFrame(values)
    theirs = frame.selectExpr(*(f"{one} AS c{n}" for n, one in enumerate(columns))).toArrow()
    for n, pattern in enumerate(patterns):
        for k, (name, kind) in enumerate((("rlike", pa.bool_()), ("regexp_substr", pa.string()))):
            ours = compute_call(REGEXES[name], [values["s"], pa.scalar(pattern)], kind).to_pylist()
            assert ours == theirs[f"c{2 * n + k}"].to_pylist(), (name, pattern)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a(?=b)", "the group"), ("(?<x>a)", "the group"), (r"(a)\1", "1"), (r"\bword", "b"),
        ("a++", r"\+\+"), ("(a*)*", "may be empty"), ("[a[b]]", "inside a class"),
        ("[a&&b]", "inside a class"), ("a$b", "is not at the end"), ("(?i)é", "é"),
        ("(a", "not closed"),
        ("a)", "closing parenthesis"), ("*a", "repeats nothing"), ("a{2,1}", "repetition"),
        (r"\p{L}", "p"), ("[b-a]", "range"), ("a\\", "ends too early"), ("(?s).", "the group"),
    ],
)  # fmt: skip
def test_what_engines_read_differently_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why) as caught:
        java_regex("rlike", pattern)
    assert "rlike does not support" in str(caught.value)
