"""Large log files read by Arrow, in every spelling, compared with the slower reader."""

import json
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spelling import STYLES, spelled

import txlog
from tests.examples import examples
from txlog.actions.bulk import decode_large
from txlog.actions.columns import decode_rows
from txlog.actions.ndjson import rows
from txlog.base.errors import LogCorruptError
from txlog.snapshot import commits

LARGE = "x" * (300 * 1024)
"""In a commit's `commitInfo`, it makes the commit one that is read by columns."""
texts = st.sampled_from(["", "a", "p=1/é b", 'q"\\/', "2026-01-02", "2026-01-02T03:04:05Z", "7"])
longs = st.integers(-(2**63), 2**63 - 1)
sizes = st.integers(0, 2**63 - 1)
maps = st.dictionaries(st.sampled_from(["p", "q", "/"]), st.none() | texts, max_size=2)
vectors = st.fixed_dictionaries(
    {
        "storageType": st.sampled_from("uip"),
        "pathOrInlineDv": texts,
        "sizeInBytes": st.integers(0, 2**31 - 1),
        "cardinality": sizes,
    },
    optional={"offset": st.none() | st.integers(0, 2**31 - 1)},
)
optional = {
    "stats": st.none() | texts,
    "tags": st.none() | maps,
    "deletionVector": st.none() | vectors,
    "baseRowId": st.none() | longs,
    "unknown": st.none() | st.just({"a": [1]}),
}
required = {
    "path": texts,
    "partitionValues": maps,
    "size": sizes,
    "modificationTime": longs,
    "dataChange": st.booleans(),
}
adds = st.fixed_dictionaries(required, optional=optional).map(lambda body: {"add": body})
removes = st.fixed_dictionaries(
    {"path": texts},
    optional={**optional, "partitionValues": st.none() | maps, "size": st.none() | longs},
).map(lambda body: {"remove": body})
others = st.sampled_from([{"txn": {"appId": "a", "version": 1}}, {"commitInfo": {"n": [1, "x"]}}])


def one_by_one(table: Any) -> list[dict[str, Any]]:
    """Return rows in any order, their maps as dictionaries."""
    found = table.to_pylist(maps_as_pydicts="lossy")
    return sorted(found, key=lambda row: (not row["is_add"], json.dumps(row, sort_keys=True)))


@given(
    st.lists(adds | removes | others, max_size=8),
    st.randoms(use_true_random=False),
    st.sampled_from([None, *STYLES]),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_any_spelling_means_the_same(
    actions: list[dict[str, Any]], chance: random.Random, style: Any, end: str
) -> None:
    lines = [spelled(row, chance) if style is None else style(row) for row in actions]
    large = decode_large("".join(line + end for line in lines).encode(), version=3)
    if large is None:  # The slower way takes it.
        return
    table, left = large
    table.validate(full=True)
    assert one_by_one(table) == one_by_one(decode_rows([(3, actions, "f")]))
    assert left == [row for row in actions if "add" not in row and "remove" not in row]


def add(number: int, **fields: Any) -> dict[str, Any]:
    body = {"path": f"f{number}", "partitionValues": {"p": "1", "q": None}, "size": number}
    return {"add": {**body, "modificationTime": 1, "dataChange": True, **fields}}


VECTOR = {"storageType": "u", "pathOrInlineDv": "ab", "sizeInBytes": 3, "cardinality": 4}
LIKE_WRITERS = {
    "adds": [add(number) for number in range(9)],
    "adds and removes": [
        row for at in range(5) for row in (add(at), {"remove": {"path": f"g{at}"}})
    ],
    "some vectors": [
        add(0),
        add(1, deletionVector={**VECTOR, "offset": 1}),
        add(2, deletionVector=None),
    ],
    "some statistics": [add(0), add(1, stats='{"numRecords":1}'), add(2)],
    "tags": [add(number, tags={"a": str(number)}) for number in range(3)],
    "unpartitioned": [add(number, partitionValues={}) for number in range(3)],
    "unknown fields": [add(0, later={"a": [1]}), add(1, later={"a": []})],
    "actions between": [add(0), {"txn": {"appId": "a", "version": 1}}, add(1)],
}


@pytest.mark.parametrize("style", STYLES, ids=["compact", "json.dumps", "commas", "colons"])
@pytest.mark.parametrize("name", LIKE_WRITERS)
def test_what_writers_write_goes_the_fast_way(name: str, style: Any) -> None:
    actions = [{"commitInfo": {"operation": "WRITE"}}, *LIKE_WRITERS[name]]
    large = decode_large("\n".join(map(style, actions)).encode(), version=3)
    assert large is not None
    table, left = large
    wanted = decode_rows([(3, actions, "f")])
    assert table.schema == wanted.schema
    assert one_by_one(table) == one_by_one(wanted)
    assert left == [row for row in actions if "add" not in row and "remove" not in row]


GOOD = json.dumps(add(0)).encode()


@pytest.mark.parametrize(
    "line",
    [
        b'{"add": {"path": "x"}}',
        GOOD.replace(b'"size": 0', b'"size": "0"'),
        GOOD.replace(b'"size": 0', b'"size": 1.0'),
        GOOD.replace(b'"p": "1"', b'"p": 1'),
        GOOD.replace(b'"q": null', b'"q": null, "r": "2"'),
        GOOD.replace(b'"q": null', b'"s": null'),
        GOOD.replace(b', "q": null', b""),
        GOOD.replace(b"f0", b"\xff"),
        GOOD.replace(b"f0", b"\\ud800"),
        GOOD.replace(b"f0", b"f\x01"),
        GOOD[:-1] + b', "txn": {"appId": "a", "version": 1}}',
        GOOD + GOOD,
        GOOD + b" x",
        GOOD[:40],
        GOOD + b"\0",
        GOOD.replace(b"path", b"\\u0070ath").replace(b'"size": 0, ', b""),
        b'{"txn": 1, "add": {}}',
    ],
)
def test_whatever_does_not_fit_is_left_to_the_slower_way(line: bytes) -> None:
    assert decode_large(b"\n".join([GOOD, line, GOOD]), version=0) is None


def test_a_large_commit_names_the_line_at_fault(tmp_path: Path) -> None:
    table = txlog.Table.create(tmp_path, SCHEMA)
    lines = [{"commitInfo": {"note": LARGE}}, add(0, partitionValues={}), add(1, size="1")]
    write(tmp_path, 1, "\n".join(map(json.dumps, lines)))
    with pytest.raises(LogCorruptError) as caught:
        txlog.Table(table.uri)
    assert (caught.value.line, caught.value.field) == (3, "add.size")


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES, ids=["compact", "json.dumps", "commas", "colons"])
@pytest.mark.parametrize("kind", ["json", "compacted.json"])
def test_a_table_is_opened_the_fast_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: Any, kind: str
) -> None:
    txlog.Table.create(tmp_path, SCHEMA)
    small = {"commitInfo": {"operation": "WRITE"}}
    many = [add(at, partitionValues={}) for at in range(3_000)]
    write(tmp_path, 1, "\n".join(map(style, [small, many[0]])))
    write(tmp_path, 2, "\n".join(map(style, [small, *many])))
    write(tmp_path, 3, "\n".join(map(style, [small, add(3_000, partitionValues={})])))
    if kind != "json":
        name = f"{2:020}.{3:020}.{kind}"
        rows = [*many, add(3_000, partitionValues={})]
        (tmp_path / "_delta_log" / name).write_text("\n".join(map(style, rows)), encoding="utf-8")
    objects = []
    one_by_one = commits.parse_many

    def counted(texts: Any, files: Any) -> Any:
        for found in one_by_one(texts, files):
            objects.extend(found[0])
            yield found

    monkeypatch.setattr(commits, "parse_many", counted)
    table = txlog.Table(tmp_path)
    assert table.files(["path"]).num_rows == 3_001
    assert len(objects) < 20


SCHEMA = pa.schema([("n", "int64"), ("t", "string")])
statistics = st.fixed_dictionaries(
    {"numRecords": st.integers(1, 9)},
    optional={
        "minValues": st.fixed_dictionaries({"n": st.integers(0, 5), "t": texts}),
        "maxValues": st.fixed_dictionaries({"n": st.integers(5, 9), "t": st.just("~ , : }")}),
        "nullCount": st.just({"n": 0, "t": 0}),
        "tightBounds": st.booleans(),
    },
)


def write(root: Path, version: int, text: str) -> None:
    (root / "_delta_log" / f"{version:020}.json").write_bytes(text.encode())


def uris(root: Path, where: str | None) -> list[str]:
    return sorted(uri.rpartition("/")[2] for uri in txlog.Table(root).scan(where=where).file_uris())


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(
    st.lists(st.lists(statistics | st.none(), min_size=1, max_size=4), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
    st.booleans(),
    st.sampled_from(["\n", "\r\n"]),
)
def test_a_log_in_any_spelling_opens_and_skips_the_same(
    commits: list[list[Any]], chance: random.Random, large: bool, end: str
) -> None:
    with TemporaryDirectory() as folder:
        roots = [Path(folder, name) for name in ("plain", "odd")]
        for root in roots:
            txlog.Table.create(root, SCHEMA)
        number = 0
        for version, files in enumerate(commits, start=1):
            note = {"commitInfo": {"operation": "WRITE", "note": LARGE if large else ""}}
            plain, odd = [note], [note]
            for stats in files:
                number += 1
                body = {"partitionValues": {}, "stats": stats and json.dumps(stats)}
                plain.append(add(number, **body))
                body["stats"] = stats and spelled(stats, chance)
                odd.append(add(number, **body))
            write(roots[0], version, "".join(STYLES[0](row) + "\n" for row in plain))
            write(roots[1], version, "".join(spelled(row, chance) + end for row in odd))
        for where in (None, "n < 3", "n > 6", "t = 'a'", "t > 'zz'", "n IS NULL"):
            assert uris(roots[1], where) == uris(roots[0], where), where
        stated = [
            sorted(txlog.Table(root).files(["path", "num_records"]).to_pylist(), key=str)
            for root in roots
        ]
        assert stated[0] == stated[1]
        wanted = {
            row["add"]["path"]: rows(STYLES[0](row).encode(), path="f")[0]["add"]["size"]
            for row in plain[1:]
        }
        sizes = {
            row["path"]: row["size_bytes"]
            for row in txlog.Table(roots[1]).files(["path", "size_bytes"]).to_pylist()
        }
        assert wanted.items() <= sizes.items()


def test_rows_of_a_large_commit_are_those_of_a_small_one(tmp_path: Path) -> None:
    lines = [add(at, deletionVector=None, partitionValues={}) for at in range(2_000)]
    data = "\n".join(map(json.dumps, lines)).encode()
    assert len(data) > 256 * 1024 // 2
    large = decode_large(data, version=1)
    assert large is not None
    assert large[0].equals(decode_rows([(1, lines, "f")]))
