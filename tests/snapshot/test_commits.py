"""Reading commits: many lines at a time give the same result as line by line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txlog.actions.action import Action
from txlog.actions.ndjson import BLANK, COMMIT_MARK, decode_action, sealed
from txlog.base.errors import LogCorruptError
from txlog.log.names import LogFile, commit_name
from txlog.snapshot.commits import (
    Rows,
    glance_at_commit,
    parse_commit,
    parse_many,
    parse_rows,
    read_commit,
    told_by_commit,
)
from txlog.store.local.local import LocalStore

FILE = LogFile(commit_name(5), "commit", 5, modified_ms=9)

bodies = {
    "add": st.none() | st.just({"path": "a"}),
    "remove": st.none() | st.just({"path": "b"}),
    "commitInfo": st.sampled_from([None, {}, {"operation": "WRITE"}, "odd"]),
    "txn": st.none() | st.builds(lambda v: {"appId": "me", "version": v}, st.integers(0, 3)),
    "domainMetadata": st.none()
    | st.just({"domain": "d", "configuration": "", "removed": False})
    | st.just({"domain": 3}),
    "protocol": st.none() | st.just({"minReaderVersion": 1, "minWriterVersion": 2}),
    "cdc": st.none() | st.just({}),
}
objects = st.lists(st.fixed_dictionaries({}, optional=bodies), min_size=1, max_size=5)

Found = tuple[list[tuple[int, Action]], tuple[int, dict[str, Any]] | None]


def line_by_line(found: list[dict[str, Any]]) -> Found:
    """The oracle: what lines hold besides files, one line after the other."""
    controls: list[tuple[int, Action]] = []
    told = None
    for line, row in enumerate(found, start=1):
        if told is None and isinstance(row.get("commitInfo"), dict):
            told = line, row["commitInfo"]
        for name in ("protocol", "metaData", "txn", "domainMetadata"):
            if row.get(name) is not None:
                action = decode_action(name, row[name], path=FILE.path, line=line)
                controls.append((FILE.version, action))
    return controls, told


@given(objects)
def test_a_commit_is_what_its_lines_are(found: list[dict[str, Any]]) -> None:
    data = b"\n".join(map(orjson.dumps, found))
    try:
        controls, told = line_by_line(found)
    except LogCorruptError as error:
        expected = str(error)
        with pytest.raises(LogCorruptError) as raised:
            parse_commit(data, FILE)
        assert str(raised.value) == expected
        return
    commit = parse_commit(data, FILE)
    assert (list(commit.controls), commit.info_line, commit.rows) == (controls, told, found)
    assert (commit.version, commit.path, commit.modified_ms) == (5, FILE.path, 9)


@pytest.mark.parametrize("data", [b"", b" \n", b"\r\n\t\n"])
def test_an_empty_commit_was_torn(data: bytes) -> None:
    with pytest.raises(LogCorruptError, match="the file is empty"):
        parse_commit(data, FILE)


def test_of_two_faults_the_action_is_named_before_the_seal() -> None:
    info = b'{"commitInfo":{' + COMMIT_MARK + BLANK.encode() + b'"}}\n'
    data = sealed(info + b'{"txn":{"appId":"a","version":1}}\n', COMMIT_MARK)
    assert parse_commit(data, FILE).controls
    with pytest.raises(LogCorruptError, match="do not match the checksum"):
        parse_commit(data.replace(b'"version":1', b'"version":2'), FILE)
    with pytest.raises(LogCorruptError) as raised:
        parse_commit(data.replace(b'"version":1', b'"version":""'), FILE)
    assert (raised.value.line, raised.value.field) == (2, "txn.version")


sound = objects.map(lambda found: b"\n".join(map(orjson.dumps, found)))
odd = st.sampled_from(
    [
        b"",
        b" \n",
        b"null",
        b"[1]",
        b'{"add":{"path":"x"',
        b'"}}',
        b'{"a":[[1',
        b"2]]}",
        b"{},{}",
        b"{}{}",
        b'{"a":\n1}',
        b'{"a":1\n"b":2}',
        b'\xef\xbb\xbf{"add":{"path":"b"}}',
        b'{"add":{"path":"\xff"}}',
        sealed(b'{"commitInfo":{' + COMMIT_MARK + BLANK.encode() + b'"}}\n{}', COMMIT_MARK),
        b'{"commitInfo":{' + COMMIT_MARK + b'01234567"}}',
        b'{"commitInfo":{' + COMMIT_MARK + b'01234567"}}\n{}\n',
    ]
)
ended = st.builds(bytes.__add__, sound | odd, st.sampled_from([b"", b"\n", b"\r\n"]))


def one_by_one(texts: list[bytes], files: list[LogFile]) -> Iterator[Rows]:
    """The oracle: each file by itself."""
    for data, file in zip(texts, files, strict=True):
        yield parse_rows(data, file)


def until_it_fails(found: Iterator[Rows]) -> tuple[list[Rows], str | None]:
    kept: list[Rows] = []
    try:
        kept.extend(found)
    except LogCorruptError as error:
        return kept, str(error)
    return kept, None


@given(st.lists(ended, max_size=4))
def test_many_files_are_what_each_is_by_itself(texts: list[bytes]) -> None:
    files = [LogFile(commit_name(at), "commit", at) for at in range(len(texts))]
    together = until_it_fails(parse_many(texts, files))
    assert together == until_it_fails(one_by_one(texts, files))


ADD = {"path": "p", "partitionValues": {}, "size": 1, "modificationTime": 2, "dataChange": True}
INFO = {"commitInfo": {"operation": "WRITE", "userName": "ann"}}
DOMAIN = {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}


def commit_of(lines: list[Any]) -> LogFile:
    texts = [line if isinstance(line, bytes) else orjson.dumps(line) for line in lines]
    return LogFile(commit_name(3), "commit", 3, modified_ms=5, content=b"\n".join(texts))


@pytest.mark.parametrize("least", [1, 1 << 20])
def test_a_glance_at_a_commit_leaves_out_its_file_actions(
    least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txlog.snapshot.commits._LARGE_BYTES", least)
    store = LocalStore("/nowhere")
    adds: list[Any] = [{"add": ADD | {"path": f"p{n}"}} for n in range(9)]
    spaced = b'{ "commitInfo": {"operation": "SPACED"} }'
    for lines in (
        [INFO, *adds, DOMAIN],
        [*adds, DOMAIN, INFO],
        [DOMAIN],
        adds,
        [*adds, spaced],
        [INFO],
    ):
        whole = read_commit(store, commit_of(lines))
        found = glance_at_commit(store, commit_of(lines))
        assert (found.controls, found.version, found.modified_ms) == (
            whole.controls, whole.version, whole.modified_ms,
        )  # fmt: skip
        assert found.info == whole.info == told_by_commit(store, commit_of(lines)).info
        assert len(found.rows) == (len(lines) - (9 if least == 1 and len(lines) > 1 else 0))
    for damage in (b'{"add":{"path":"x"', b"[]", b'{"protocol":{"minReaderVersion":"x"}}', b"\0"):
        with pytest.raises(LogCorruptError) as told:
            read_commit(store, commit_of([*adds, damage]))
        with pytest.raises(LogCorruptError) as seen:
            glance_at_commit(store, commit_of([*adds, damage]))
        assert str(seen.value) == str(told.value)
