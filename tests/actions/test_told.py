"""`commitInfo` may have any JSON; everything that shows commits shows it."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import txlog
from tests.examples import examples
from txlog.actions.told import json_of, told_pairs, told_text
from txlog.tools.cli.app import run

FIELDS = (
    "timestamp",
    "operation",
    "operationParameters",
    "operationMetrics",
    "readVersion",
    "isolationLevel",
    "isBlindAppend",
    "engineInfo",
    "userMetadata",
    "userName",
    "userId",
    "tags",
    "txnId",
)
DEEP: Any = "x"
for _ in range(300):
    DEEP = [DEEP]
JSON = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.text(max_size=3), st.one_of(st.none(), st.integers(), st.lists(st.none()))),
)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
@example({name: [1] for name in FIELDS})
@example({name: {"a": {"b": [1]}} for name in FIELDS})
@example(dict.fromkeys(FIELDS, 5))
def test_whatever_a_writer_tells_each_door_shows_the_commit(info: dict[str, Any]) -> None:
    pytest.importorskip("vl_convert")
    with TemporaryDirectory() as place:
        table = txlog.write(place, pa.table({"n": [1]}))
        table.append(pa.table({"n": [2]}))
        log = Path(place) / "_delta_log" / f"{1:020}.json"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        lines = [{"commitInfo": info} if "commitInfo" in line else line for line in lines]
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        Path(place, "_delta_log", f".{1:020}.json.crc").unlink(missing_ok=True)
        table = txlog.Table(place)
        entries = table.history()
        assert entries[0]["version"] == 1
        assert entries._repr_html_()
        assert entries.to_arrow().num_rows == 2
        assert table.blame().to_arrow().num_rows == 2
        for command in (["history"], ["history", "--json"], ["blame"], ["report"]):
            more = ["--output", f"{place}/r.html"] if command == ["report"] else []
            assert run([command[0], place, *command[1:], *more]) == 0, command


def test_texts_and_pairs() -> None:
    info = {"a": "", "b": [1], "c": {"x": None, "y": 2, "z": "t"}, "d": DEEP}
    assert told_text(info, "a", "none", "b") == "[1]"
    assert told_text(info, "none") is None
    assert told_pairs(info, "c") == {"y": "2", "z": "t"}
    assert told_pairs(info, "b") == {}
    assert json_of(DEEP) == "…"
