"""Lists of files for Spark: their text, however it is cut."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.moved import moved
from txlog.spark_ext.reads.frame import manifest_parts, write_manifest


@given(
    files=st.lists(st.tuples(st.text("abz%/=_-é", max_size=9), st.integers(0, 2**62)), max_size=9),
    skipped=st.integers(0, 2),
    lines=st.sampled_from([1, 2, 3, 1_000_000]),
)
def test_a_list_has_one_line_for_each_file(
    files: list[tuple[str, int]], skipped: int, lines: int
) -> None:
    uris = pa.array([uri for uri, _ in files], pa.string()).slice(skipped)
    sizes = pa.array([size for _, size in files], pa.int64()).slice(skipped)
    with moved({"txlog.spark_ext.reads.frame:_LINES": lines}):
        text = b"".join(map(bytes, manifest_parts(uris, sizes))).decode()
    first, *rest = text.split("\n")
    assert first == "v1"
    told = [(row["path"], row["size"]) for row in map(json.loads, rest)]
    assert told == files[skipped:]


def test_equal_lists_are_written_once(tmp_path: Path) -> None:
    one, same = ([b"v1", pa.py_buffer(b"\nx")], [b"v1\n", b"x"])
    folder = write_manifest(one, str(tmp_path))
    file = Path(folder) / "_spark_metadata" / "0"
    written = file.stat().st_mtime_ns
    assert file.read_bytes() == b"v1\nx"
    assert write_manifest(same, str(tmp_path)) == folder
    assert file.stat().st_mtime_ns == written
    assert write_manifest([b"v1"], str(tmp_path)) != folder
