"""The state of an opened table, compared with the protocol's rules as a loop; keys."""

import random
from itertools import count
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_state import Commit, Key, PlainState, plain_state

import txlog
from txlog.actions.columns import decode_rows, empty_rows
from txlog.base.errors import LogCorruptError
from txlog.log.names import commit_name
from txlog.log.paths import canonical_key
from txlog.reconcile.files import (
    FileState,
    are_distinct,
    newer_of,
    overlay,
    reconcile_files,
    text_hashes,
    untouched,
)
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.store.base import Store
from txlog.store.open import open_store

PATHS = ("a", "b", "c%20d")
SCHEMAS = [
    orjson.dumps(
        {
            "type": "struct",
            "fields": [{"name": name, "type": "long", "nullable": True, "metadata": {}}],
        }
    ).decode()
    for name in ("x", "y")
]
LARGE = {"commitInfo": {"note": "x" * (300 * 1024)}}
"""With it, a commit is read by columns, by Arrow."""
PROTOCOL = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
numbers = count()


def protocol(features: list[str]) -> dict[str, Any]:
    return {"protocol": {**PROTOCOL, "writerFeatures": ["deletionVectors", *features]}}


def metadata(schema: str) -> dict[str, Any]:
    held = {"id": "1", "format": {"provider": "parquet"}, "schemaString": schema}
    return {"metaData": {**held, "partitionColumns": [], "configuration": {}}}


def body(path: str, vector: str | None, version: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "path": path,
        "partitionValues": {},
        "size": version,
        "modificationTime": 0,
        "dataChange": True,
    }
    if vector is not None:
        found["deletionVector"] = {
            "storageType": "u",
            "pathOrInlineDv": vector,
            "sizeInBytes": 1,
            "cardinality": 1,
        }
    return found


FIRST: Commit = [protocol([]), metadata(SCHEMAS[0])]
keys = st.tuples(st.sampled_from(PATHS), st.sampled_from([None, "v1", "v2"]))
# For each logical file that a commit touches, whether it adds it.
touched = st.dictionaries(keys, st.booleans(), max_size=4)


def file_actions(version: int, files: dict[Key, bool]) -> Commit:
    return [
        {"add" if added else "remove": body(path, vector, version)}
        for (path, vector), added in files.items()
    ]


@st.composite
def commits(draw: st.DrawFn) -> Commit:
    rows = file_actions(0, draw(touched))
    for app, version in draw(st.dictionaries(st.sampled_from("xy"), st.integers(0, 9))).items():
        rows.append({"txn": {"appId": app, "version": version}})
    for name, gone in draw(st.dictionaries(st.sampled_from("mn"), st.booleans())).items():
        text = str(draw(st.integers(0, 99)))
        rows.append({"domainMetadata": {"domain": name, "configuration": text, "removed": gone}})
    rows += [protocol(found)] if (found := draw(st.none() | st.just(["appendOnly"]))) else []
    rows += [metadata(schema)] if (schema := draw(st.none() | st.sampled_from(SCHEMAS))) else []
    return draw(st.permutations(rows))


def stored(log: list[Commit]) -> Store:
    store = open_store(f"memory://reconcile-{next(numbers)}")
    for version, rows in enumerate(log):
        lines = b"\n".join(map(orjson.dumps, rows)) + b"\n" if rows else b"{}\n"
        store.write_new(f"_delta_log/{commit_name(version).rpartition('/')[2]}", lines)
    return store


def as_files(state: FileState) -> dict[Key, tuple[bool, int]]:
    found = {}
    for table, added in ((state.live, True), (state.tombstones, False)):
        for row in table.to_pylist():
            vector = row["deletion_vector"]
            key = (row["path"].replace("%20", " "), vector["pathOrInlineDv"] if vector else None)
            assert key not in found
            assert row["is_add"] is added
            found[key] = (added, row["version"])
    return found


def opened(store: Store, version: int) -> PlainState:
    """Return the version that txlog opens from a log, with its files."""
    snapshot = load_snapshot(store, version=version)
    domains = snapshot.controls.domains.items()
    return PlainState(
        as_files(load_files(store, snapshot)),
        {app: txn.version for app, txn in snapshot.controls.txns.items()},
        {name: (domain.configuration, domain.removed) for name, domain in domains},
        list(snapshot.protocol.writer_features or ()),
        snapshot.metadata.schema_string or "",
    )


@pytest.mark.spec("REC-1", "REC-2", "REC-3", "REC-4")
@given(
    st.lists(commits(), min_size=1, max_size=6),
    st.integers(0, 6),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_opening_agrees_with_one_by_one(
    log: list[Commit], version: int, large: bool, chance: random.Random
) -> None:
    log = [FIRST, *log]
    version = min(version, len(log) - 1)
    written = [[LARGE, *rows] if large and chance.random() < 0.5 else rows for rows in log]
    assert opened(stored(written), version) == plain_state(log[: version + 1])


@pytest.mark.slow
@pytest.mark.spec("REC-1", "REC-2", "REC-3", "REC-4", "REC-7")
@given(st.lists(commits(), min_size=2, max_size=5), st.integers(1, 4))
def test_opening_over_a_checkpoint_agrees_with_one_by_one(log: list[Commit], at: int) -> None:
    log = [FIRST, *log]
    at = min(at, len(log) - 2)
    store = stored(log[: at + 1])
    txlog.Table(store.root).maintenance.checkpoint()
    later = stored(log)
    for version in range(at + 1, len(log)):
        name = f"_delta_log/{commit_name(version).rpartition('/')[2]}"
        store.write_new(name, later.read(name))
    found, wanted = opened(store, len(log) - 1), plain_state(log)
    assert load_snapshot(store).checkpoint
    live = {key: version for key, (is_live, version) in found.files.items() if is_live}
    assert set(live) == {key for key, (is_live, _) in wanted.files.items() if is_live}
    assert found.txns == wanted.txns
    gone = {name for name, (_, removed) in wanted.domains.items() if removed}
    assert {**wanted.domains, **found.domains} == wanted.domains
    assert set(wanted.domains) - set(found.domains) <= gone
    assert (found.features, found.schema) == (wanted.features, wanted.schema)


@pytest.mark.spec("REC-7")
@given(st.lists(touched, min_size=1, max_size=7), st.integers(0, 7))
def test_a_checkpoint_anywhere_changes_nothing(log: list[dict[Key, bool]], at: int) -> None:
    rows = [
        decode_rows([(version, file_actions(version, files), "f")])
        for version, files in enumerate(log)
    ]
    base = reconcile_files(pa.concat_tables([empty_rows(), *rows[:at]]))
    base_rows = pa.concat_tables([base.live, base.tombstones])
    state = overlay(base_rows, pa.concat_tables([empty_rows(), *rows[at:]]))
    plain = plain_state([file_actions(version, files) for version, files in enumerate(log)])
    assert as_files(state) == plain.files


@pytest.mark.spec("REC-4")
def test_spellings_of_one_path_are_one_file() -> None:
    lines = [{"add": body("file:/x/a%20b", None, 0)}]
    gone = [{"remove": body("/x/a b", None, 1)}]
    store = stored([[*FIRST, *lines], gone])
    assert load_files(store, load_snapshot(store)).live.num_rows == 0


@pytest.mark.spec("REC-5")
@pytest.mark.parametrize("first", [[], [LARGE]])
def test_a_file_named_twice_in_one_commit_is_an_error(first: Commit) -> None:
    store = stored([FIRST, [*first, {"add": body("a", None, 0)}, {"remove": body("a", None, 0)}]])
    with pytest.raises(LogCorruptError, match="twice") as caught:
        load_files(store, load_snapshot(store))
    assert (caught.value.version, caught.value.field) == (1, "a")


TWICE = {
    "metaData": [metadata(schema) for schema in SCHEMAS],
    "protocol": [protocol([]), protocol(["appendOnly"])],
    "txn x": [{"txn": {"appId": "x", "version": version}} for version in (1, 2)],
    "domainMetadata m": [
        {"domainMetadata": {"domain": "m", "configuration": text, "removed": False}}
        for text in "ab"
    ],
}


@pytest.mark.spec("REC-6")
@pytest.mark.parametrize("first", [[], [LARGE]])
@pytest.mark.parametrize("field", TWICE)
def test_two_different_actions_of_one_key_are_an_error(field: str, first: Commit) -> None:
    pair = TWICE[field]
    with pytest.raises(LogCorruptError, match="twice") as caught:
        load_snapshot(stored([FIRST, [*first, *pair]]))
    assert (caught.value.version, caught.value.field) == (1, field)
    load_snapshot(stored([FIRST, [*first, pair[0], pair[0]]]))


texts = st.text(alphabet="ab/é", max_size=5) | st.text(alphabet="ab", min_size=30, max_size=45)


@given(st.lists(texts | st.none(), max_size=6), st.integers(0, 3))
def test_a_text_has_one_number_wherever_it_is(found: list[str | None], cut: int) -> None:
    cut = min(cut, len(found))
    together = text_hashes(pa.array(found, pa.string()).slice(cut)).tolist()
    alone = [text_hashes(pa.array([text], pa.string()))[0] for text in found[cut:]]
    assert together == alone
    by_number = dict(zip(together, found[cut:], strict=True))
    if are_distinct(text_hashes(pa.array(found[cut:], pa.string()))):
        assert len(set(found[cut:])) == len(found[cut:]) == len(by_number)


NAMES = (
    "part-00000-aaaa-c000.snappy.parquet",
    "part-00001-aaaa-c000.snappy.parquet",
    "part-00001-bbbb-c000.snappy.parquet",
    "x.parquet",
    "a.b",
    "é-part-00001",
    "p.",
)
FOLDERS = ("", "a/", "p=1/q=2/", "./", "a//", "a/./", "a/b/../", "/t/", "file:/t/", "file:///t//",
           "s3://b/t/", "p=%20/", "p= /")  # fmt: skip
ENDS = ("", "", "", "/", "/.", "/c/..")


def spelled(name: str) -> str:
    """Return a name with a letter of it encoded."""
    return name.replace("a", "%61", 1)


paths = st.builds(
    lambda folder, name, end: folder + name + end,
    st.sampled_from(FOLDERS),
    st.sampled_from(NAMES) | st.sampled_from(NAMES).map(spelled),
    st.sampled_from(ENDS),
)
files = st.lists(st.tuples(paths, st.sampled_from([None, None, "uab", "uab@1"])), max_size=12)


def table(rows: list[tuple[str, Any]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), ()]
    return pa.table(
        {"path": pa.array(columns[0], pa.string()), "dv_id": pa.array(columns[1], pa.string())}
    )


@given(files, files, st.integers(0, 3), st.integers(0, 3))
def test_what_is_left_is_of_no_newer_file(
    base: list[tuple[str, Any]], tail: list[tuple[str, Any]], cut: int, split: int
) -> None:
    gone = {(canonical_key(path), vector) for path, vector in tail}
    whole = table(base)
    rows = pa.concat_tables([whole.slice(cut, split), whole.slice(cut + split)])
    held = base[cut:]
    wanted = [(path, vector) for path, vector in held if (canonical_key(path), vector) not in gone]
    found = untouched(rows, newer_of(table(tail)))
    assert list(zip(*found.to_pydict().values(), strict=True)) == wanted


@pytest.mark.parametrize("count", [1, 64, 65, 300])
def test_many_newer_files(count: int) -> None:
    base = [(f"part-{at:05}-abcdefgh.parquet", None) for at in range(1_000)]
    found = untouched(table(base), newer_of(table(base[:count])))
    assert found["path"].to_pylist() == [path for path, _ in base[count:]]
    plain = newer_of(table(base[:count])).words is not None
    assert plain == (count <= 64), "few are told by eight bytes"
