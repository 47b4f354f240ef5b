"""Version checksums are read, compared with the log and reported, but never trusted."""

import json
import pickle
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import txlog
from txlog.base.errors import LogCorruptError
from txlog.extend import context_of
from txlog.snapshot.checksum import (
    ChecksumReport,
    Comparison,
    Malformed,
    VersionChecksum,
    compare,
    read_checksum,
    verify_checksum,
)
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.store.base import Store
from txlog.store.open import open_store

Json = dict[str, Any]

STAMP = 1_700_000_000_000
BINS = [0, 8192, 16384, 1 << 20, 1 << 38]
DELETED_BINS = [(0, 0), (1, 9), (10, 99), (100, 999), (1000, 9999), (10_000, 99_999),
                (100_000, 999_999), (1_000_000, 9_999_999), (10_000_000, 2**31 - 2),
                (2**31 - 1, 2**63)]  # fmt: skip
ROOTS = count()


def name(version: int, ending: str) -> str:
    return f"_delta_log/{version:020d}.{ending}"


def store_of(*commits: list[Json]) -> Store:
    store = open_store(f"memory://checksums/{next(ROOTS)}")
    for version, actions in enumerate(commits):
        store.put_if_absent(name(version, "json"), b"\n".join(map(orjson.dumps, actions)))
    return store


def put(store: Store, checksum: Json | bytes, version: int = 0) -> None:
    data = checksum if isinstance(checksum, bytes) else orjson.dumps(checksum)
    store.replace(name(version, "crc"), data)


def verify(store: Store, version: int | None = None) -> ChecksumReport:
    snapshot = load_snapshot(store, version=version)
    return verify_checksum(store, snapshot, load_files(store, snapshot))


def fields_of(report: ChecksumReport) -> list[str | None]:
    return [problem.field for problem in report.problems]


# Tables, and what the protocol says of their checksums ------------------------------------------


def vector(number: int, cardinality: int) -> Json:
    return {
        "storageType": "u",
        "pathOrInlineDv": f"{number:020d}",
        "offset": 1,
        "sizeInBytes": 40,
        "cardinality": cardinality,
    }


def add(path: str, size: int = 10, deletion_vector: Json | None = None) -> Json:
    body = {"path": path, "partitionValues": {}, "size": size, "modificationTime": 7}
    extra = {} if deletion_vector is None else {"deletionVector": deletion_vector}
    return body | extra | {"dataChange": True}


def schema(*columns: tuple[str, str]) -> str:
    nodes = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns]
    return orjson.dumps({"type": "struct", "fields": nodes}).decode()


@dataclass(frozen=True)
class State:
    """A table of one commit."""

    files: list[Json]
    txns: list[Json] = field(default_factory=list)
    domains: list[Json] = field(default_factory=list)
    configuration: dict[str, str] = field(default_factory=dict)
    with_timestamps: bool = False

    @property
    def metadata(self) -> Json:
        stamps = {"delta.enableInCommitTimestamps": "true"} if self.with_timestamps else {}
        return {
            "id": "an-id",
            "name": "a name",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema(("a", "long"), ("b", "string")),
            "partitionColumns": [],
            "createdTime": 5,
            "configuration": self.configuration | stamps,
        }

    @property
    def protocol(self) -> Json:
        return {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors", "domainMetadata", "inCommitTimestamp"],
        }

    def commit(self) -> list[Json]:
        info = {"commitInfo": {"inCommitTimestamp": STAMP}} if self.with_timestamps else {}
        return [
            info or {"commitInfo": {}},
            {"protocol": self.protocol},
            {"metaData": self.metadata},
            *({"txn": body} for body in self.txns),
            *({"domainMetadata": body} for body in self.domains),
            *({"add": body} for body in self.files),
        ]

    def checksum(self) -> Json:
        """The oracle: the protocol's own words, file by file."""
        deleted = [(body.get("deletionVector") or {}).get("cardinality", 0) for body in self.files]
        counts, sizes = [], []
        for low, high in pairwise([*BINS, 2**63]):
            inside = [body["size"] for body in self.files if low <= body["size"] < high]
            counts.append(len(inside))
            sizes.append(sum(inside))
        stamp = {"inCommitTimestampOpt": STAMP} if self.with_timestamps else {}
        return stamp | {
            "txnId": "whatever",
            "tableSizeBytes": sum(body["size"] for body in self.files),
            "numFiles": len(self.files),
            "numMetadata": 1,
            "numProtocol": 1,
            "setTransactions": self.txns,
            "domainMetadata": [body for body in self.domains if not body["removed"]],
            "metadata": self.metadata,
            "protocol": self.protocol,
            "fileSizeHistogram": {
                "sortedBinBoundaries": BINS,
                "fileCounts": counts,
                "totalBytes": sizes,
            },
            "allFiles": self.files,
            "numDeletedRecordsOpt": sum(deleted),
            "numDeletionVectorsOpt": sum("deletionVector" in body for body in self.files),
            "deletedRecordCountsHistogramOpt": {
                "deletedRecordCounts": [
                    sum(low <= number <= high for number in deleted) for low, high in DELETED_BINS
                ]
            },
        }


sizes = st.sampled_from([0, 1, 8191, 8192, 8193, 16384, (1 << 20) - 1, 1 << 38, 1 << 50])
cardinalities = st.sampled_from([None, 0, *(edge for pair in DELETED_BINS[1:9] for edge in pair)])


@st.composite
def states(draw: st.DrawFn) -> State:
    files = draw(st.lists(st.tuples(sizes, cardinalities), max_size=6))
    apps = draw(st.lists(st.sampled_from("xyz"), unique=True))
    domains = draw(st.lists(st.sampled_from("pqr"), unique=True))
    return State(
        [
            add(f"f%20{number}", size, None if rows is None else vector(number, rows))
            for number, (size, rows) in enumerate(files)
        ],
        [{"appId": app, "version": draw(st.integers(0, 2))} for app in apps],
        [
            {"domain": domain, "configuration": "{}", "removed": draw(st.booleans())}
            for domain in domains
        ],
        with_timestamps=draw(st.booleans()),
    )


def is_stated(checksum: Json) -> set[str]:
    return set(checksum) - {"txnId"}


@given(states())
def test_a_true_checksum_agrees_in_every_field(state: State) -> None:
    store = store_of(state.commit())
    put(store, state.checksum())
    report = verify(store)
    assert report.problems == ()
    assert report.ok
    assert report.found
    assert set(report.checked) == is_stated(state.checksum())


def increased(checksum: Json, key: str, *path: str | int) -> None:
    place, last = checksum, key
    for step in path:
        place, last = place[last], step  # type: ignore[assignment]
    place[last] += 1


def changed_list(draw: st.DrawFn, items: list[Json], fresh: Json, **changes: Any) -> None:
    """Add to a list, or leave out or change one of its items."""
    where = draw(st.integers(0, len(items)))
    if where == len(items):
        items.append(fresh)
    elif draw(st.booleans()):
        del items[where]
    else:
        key = draw(st.sampled_from(sorted(changes)))
        items[where][key] = changes[key]


def change(draw: st.DrawFn, checksum: Json, key: str) -> None:
    """Make one field wrong."""
    body = checksum[key]
    match key:
        case "setTransactions":
            changed_list(draw, body, {"appId": "new", "version": 0}, version=9, appId="other")
        case "domainMetadata":
            fresh = {"domain": "new", "configuration": "{}", "removed": draw(st.booleans())}
            changed_list(draw, body, fresh, configuration="{ }", domain="other", removed=True)
        case "allFiles":
            fresh = body[0] if body and draw(st.booleans()) else add("new")
            other = vector(99, 5)
            changed_list(draw, body, fresh, path="other", size=12345, deletionVector=other)
        case "metadata":
            part, value = draw(
                st.sampled_from(
                    [
                        ("id", "another"),
                        ("name", None),
                        ("description", "new"),
                        ("format", {"provider": "parquet", "options": {"a": "b"}}),
                        ("schemaString", schema(("b", "string"), ("a", "long"))),
                        ("schemaString", schema(("a", "long"), ("b", "integer"))),
                        ("schemaString", "no JSON"),
                        ("partitionColumns", ["a"]),
                        ("createdTime", 6),
                        ("configuration", {"delta.appendOnly": "true"}),
                    ]
                )
            )
            body[part] = value
        case "protocol":
            part, value = draw(
                st.sampled_from(
                    [
                        ("minReaderVersion", 2),
                        ("minWriterVersion", 6),
                        ("readerFeatures", None),
                        ("writerFeatures", ["deletionVectors"]),
                    ]
                )
            )
            body[part] = value
        case "fileSizeHistogram":
            part = draw(st.sampled_from(["fileCounts", "totalBytes"]))
            increased(checksum, key, part, draw(st.integers(0, len(BINS) - 1)))
        case "deletedRecordCountsHistogramOpt":
            increased(checksum, key, "deletedRecordCounts", draw(st.integers(0, 9)))
        case _:
            increased(checksum, key)


@given(states(), st.data())
def test_one_wrong_field_is_reported_and_no_other(state: State, data: st.DataObject) -> None:
    checksum = deepcopy(state.checksum())
    key = data.draw(st.sampled_from(sorted(is_stated(checksum))))
    data.draw(st.composite(lambda draw: change(draw, checksum, key))())
    store = store_of(state.commit())
    put(store, checksum)
    report = verify(store)
    assert fields_of(report) == [key]
    assert not report.ok
    assert set(report.checked) == is_stated(checksum)
    assert f"  {key}: " in str(report)


@given(states(), st.data())
def test_spelling_order_and_absence_have_no_meaning(state: State, data: st.DataObject) -> None:
    checksum = deepcopy(state.checksum())
    checksum["txnFromTheFuture"] = {"of": ["no", "interest"]}
    for key in ("setTransactions", "domainMetadata", "allFiles"):
        checksum[key] = data.draw(st.permutations(checksum[key]))
    for key in ("readerFeatures", "writerFeatures"):
        checksum["protocol"][key].reverse()
    node = orjson.loads(checksum["metadata"]["schemaString"])
    node["fields"] = [dict(reversed(column.items())) for column in node["fields"]]
    spelt = orjson.dumps(node, option=orjson.OPT_INDENT_2).decode()
    checksum["metadata"]["schemaString"] = spelt
    for body in checksum["allFiles"]:
        body |= {"path": body["path"].replace("%20", " "), "dataChange": False}
    if data.draw(st.booleans()):
        checksum["histogramOpt"] = checksum.pop("fileSizeHistogram")
    required = {"tableSizeBytes", "numFiles", "numMetadata", "numProtocol"}
    optional = sorted(set(checksum) - required)
    for key in data.draw(st.lists(st.sampled_from(optional), unique=True)):
        checksum[key] = None  # The same as absent.
    store = store_of(state.commit())
    put(store, checksum)
    report = verify(store)
    assert report.problems == ()
    stated = {key for key in checksum if checksum[key] is not None} - {"txnFromTheFuture"}
    if "histogramOpt" in stated:
        stated = (stated - {"histogramOpt"}) | {"fileSizeHistogram"}
    assert set(report.checked) == stated - {"txnId"}


# One by one -------------------------------------------------------------------------------------

# What every checksum of an empty table must state.
NUMBERS = {"tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1}
PLAIN = State([add("f", 10), add("g", 20)])


def test_an_absent_checksum_is_no_problem() -> None:
    store = store_of(PLAIN.commit())
    assert read_checksum(store, 0) is None
    report = verify(store)
    assert (report.version, report.path) == (0, name(0, "crc"))
    assert (report.found, report.ok, report.checked) == (False, True, ())
    assert str(report) == f"Version 0 has no checksum ({name(0, 'crc')}): nothing was checked."


def test_the_oldest_form_states_only_numbers() -> None:
    store = store_of(PLAIN.commit())
    numbers = NUMBERS | {"tableSizeBytes": 30, "numFiles": 2}
    put(store, numbers | {"numTransactions": 0})
    report = verify(store)
    assert report.ok
    assert set(report.checked) == set(numbers)
    assert "agrees with its checksum" in str(report)


WHOLE = orjson.dumps(PLAIN.checksum())


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"", None),
        (b"not JSON", None),
        (b"[1]", None),
        (b"null", None),
        (WHOLE[:-1], None),
        (WHOLE[: len(WHOLE) // 2], None),
        (WHOLE + b"x", None),
        (WHOLE + WHOLE, None),
        (b"\xff\xfe", None),
        (b"{}", "tableSizeBytes"),
        (orjson.dumps(PLAIN.checksum() | {"numFiles": "2"}), "numFiles"),
        (orjson.dumps(PLAIN.checksum() | {"numFiles": None}), "numFiles"),
        (orjson.dumps(PLAIN.checksum() | {"numFiles": 2.0}), "numFiles"),
        (orjson.dumps(PLAIN.checksum() | {"numFiles": 2**63}), "numFiles"),
        (orjson.dumps(PLAIN.checksum() | {"allFiles": [{}]}), "allFiles.0.path"),
        (orjson.dumps(PLAIN.checksum() | {"protocol": {}}), "protocol.minReaderVersion"),
    ],
)
def test_a_malformed_checksum_is_a_problem_and_no_error(data: bytes, field: str | None) -> None:
    store = store_of(PLAIN.commit())
    put(store, data)
    with pytest.raises(LogCorruptError) as caught:
        read_checksum(store, 0)
    assert caught.value.path == name(0, "crc")
    assert caught.value.field == field
    report = verify(store)
    assert (report.found, report.ok, report.checked) == (True, False, ())
    (problem,) = report.problems
    assert isinstance(problem, Malformed)
    assert problem.field == field
    assert f"The checksum of version 0 ({name(0, 'crc')}) cannot be read" in str(report)
    assert "delete it" in str(report)


@pytest.mark.parametrize(
    "change",
    [
        {"sortedBinBoundaries": [0, 5]},
        {"fileCounts": []},
        {"sortedBinBoundaries": [], "fileCounts": [], "totalBytes": []},
        {"sortedBinBoundaries": [1], "fileCounts": [2], "totalBytes": [30]},
        {"sortedBinBoundaries": [0, 9, 9], "fileCounts": [0, 0, 2], "totalBytes": [0, 0, 30]},
    ],
)
def test_a_histogram_must_be_one(change: Json) -> None:
    histogram = {"sortedBinBoundaries": [0], "fileCounts": [2], "totalBytes": [30]}
    store = store_of(PLAIN.commit())
    put(store, PLAIN.checksum() | {"fileSizeHistogram": histogram})
    assert verify(store).ok
    put(store, PLAIN.checksum() | {"fileSizeHistogram": histogram | change})
    with pytest.raises(LogCorruptError):
        read_checksum(store, 0)


def test_a_histogram_of_deletions_with_other_bins_disagrees() -> None:
    store = store_of(PLAIN.commit())
    key = "deletedRecordCountsHistogramOpt"
    put(store, PLAIN.checksum() | {key: {"deletedRecordCounts": [2]}})
    assert fields_of(verify(store)) == [key]


def test_a_report_says_what_differs_and_what_to_do() -> None:
    store = store_of(PLAIN.commit())
    wrong = {"numFiles": 3, "allFiles": [add("f", 10), add("h", 20)]}
    put(store, PLAIN.checksum() | wrong)
    report = verify(store)
    assert report.problems == (
        Comparison("numFiles", 3, 2),
        Comparison("allFiles", ("h (20 bytes)",), ("g (20 bytes)",)),
    )
    text = str(report)
    assert text.startswith(f"Version 0 does not agree with its checksum ({name(0, 'crc')}):\n")
    assert "\n  numFiles: the checksum says 3, the log 2\n" in text
    assert (
        "\n  allFiles: only the checksum has h (20 bytes); only the log has g (20 bytes)\n" in text
    )
    assert "The log decides" in text
    assert "compare both with a copy" in text
    assert pickle.loads(pickle.dumps(report)) == report


def test_many_differences_are_counted_not_listed() -> None:
    store = store_of(PLAIN.commit())
    files = [add(f"{number}{'x' * 300}") for number in range(100)]
    put(store, PLAIN.checksum() | {"allFiles": files})
    report = verify(store)
    (problem,) = report.problems
    assert isinstance(problem, Comparison)
    assert isinstance(problem.stated, tuple)
    assert len(problem.stated) == 100
    assert "and 95 more" in str(report)
    assert len(str(report)) < 2000


def test_each_version_has_its_own_checksum() -> None:
    later = State([*PLAIN.files, add("h", 30)])
    store = store_of(PLAIN.commit(), [{"add": add("h", 30)}])
    put(store, PLAIN.checksum(), 0)
    put(store, PLAIN.checksum(), 1)
    assert verify(store, 0).ok
    assert set(fields_of(verify(store, 1))) == {
        "numFiles", "tableSizeBytes", "fileSizeHistogram", "allFiles",
        "deletedRecordCountsHistogramOpt",
    }  # fmt: skip
    put(store, later.checksum(), 1)
    assert verify(store, 1).ok


def test_paths_are_compared_as_files_not_as_text() -> None:
    store = store_of(State([add("file:/data/a%20b"), add("c")]).commit())
    put(store, State([add("/data/a b"), add("c")]).checksum())
    assert verify(store).ok


def test_a_vector_is_part_of_a_file() -> None:
    state = State([add("f", 10, vector(1, 5))])
    store = store_of(state.commit())
    put(store, state.checksum() | {"allFiles": [add("f", 10, vector(2, 5))]})
    (problem,) = verify(store).problems
    assert str(problem) == (
        "allFiles: only the checksum has f with u00000000000000000002@1 (10 bytes); "
        "only the log has f with u00000000000000000001@1 (10 bytes)"
    )


def test_the_in_commit_timestamp_of_a_table_without_them() -> None:
    store = store_of(PLAIN.commit())
    put(store, PLAIN.checksum() | {"inCommitTimestampOpt": STAMP})
    (problem,) = verify(store).problems
    assert problem == Comparison("inCommitTimestampOpt", STAMP, None)
    assert str(problem) == (f"inCommitTimestampOpt: the checksum says {STAMP}, the log nothing")


def test_the_in_commit_timestamp_cannot_be_checked_without_its_commit() -> None:
    columns = pa.schema([("a", pa.int64())])
    uri = f"memory://checksums/{next(ROOTS)}"
    properties = {"delta.enableInCommitTimestamps": "true"}
    table = txlog.Table.create(uri, columns, properties=properties)
    table.maintenance.checkpoint()
    put(context_of(table).store, NUMBERS | {"inCommitTimestampOpt": table.timestamp_ms})
    assert "inCommitTimestampOpt" in verify(context_of(table).store).checked
    put(context_of(table).store, NUMBERS | {"inCommitTimestampOpt": 1})
    assert fields_of(verify(context_of(table).store)) == ["inCommitTimestampOpt"]
    table.append(pa.table({"a": [1]}))
    context_of(table).store.delete([name(0, "json")])
    report = verify(context_of(table).store, 0)
    assert report.ok
    assert "inCommitTimestampOpt" not in report.checked


@pytest.mark.parametrize(
    ("stated", "agrees"),
    [
        ([{"appId": "dated", "version": 1}, {"appId": "bare", "version": 2}], True),
        ([{"appId": "bare", "version": 2}], True),
        (
            [
                {"appId": "dated", "version": 1},
                {"appId": "bare", "version": 2},
                {"appId": "gone", "version": 3, "lastUpdated": 4},
            ],
            True,
        ),
        ([{"appId": "dated", "version": 9}, {"appId": "bare", "version": 2}], False),
        ([{"appId": "dated", "version": 1}], False),
        ([{"appId": "bare", "version": 2}, {"appId": "gone", "version": 3}], False),
    ],
)
def test_transactions_may_have_expired_on_one_side(stated: list[Json], agrees: bool) -> None:
    txns = [{"appId": "dated", "version": 1, "lastUpdated": 5}, {"appId": "bare", "version": 2}]
    kept = {"delta.setTransactionRetentionDuration": "interval 1 day"}
    for configuration in (kept, {}):
        state = State([], txns, configuration=configuration)
        store = store_of(state.commit())
        put(store, state.checksum() | {"setTransactions": stated})
        if configuration:
            assert verify(store).ok == agrees
        else:
            versions = {txn["appId"]: txn["version"] for txn in stated}
            assert verify(store).ok == (versions == {"dated": 1, "bare": 2})


def test_an_application_named_twice_disagrees() -> None:
    state = State([], [{"appId": "x", "version": 1}])
    store = store_of(state.commit())
    twice = [{"appId": "x", "version": 1}, {"appId": "x", "version": 2}]
    put(store, state.checksum() | {"setTransactions": twice})
    assert fields_of(verify(store)) == ["setTransactions"]


def test_a_wrong_schema_names_the_column() -> None:
    store = store_of(PLAIN.commit())
    other = PLAIN.metadata | {"schemaString": schema(("a", "long"), ("b", "integer"))}
    put(store, PLAIN.checksum() | {"metadata": other})
    (problem,) = verify(store).problems
    assert isinstance(problem, Comparison)
    assert isinstance(problem.stated, tuple)
    (stated,) = problem.stated
    assert '"name":"b"' in stated
    assert '"type":"integer"' in stated


def test_a_schema_nested_deep_is_compared_too() -> None:
    kind: Any = "long"
    for _ in range(150):
        kind = {"type": "struct", "fields": [{"name": "n", "type": kind}]}
    deep = PLAIN.metadata | {"schemaString": json.dumps(kind)}
    other = PLAIN.metadata | {"schemaString": json.dumps(kind).replace("long", "string")}
    store = store_of([{"protocol": PLAIN.protocol}, {"metaData": deep}])
    put(store, NUMBERS | {"metadata": deep})
    assert verify(store).ok
    put(store, NUMBERS | {"metadata": other})
    assert fields_of(verify(store)) == ["metadata"]


Spoil = Callable[[Json], Json | bytes]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: b"",
        lambda _: b"garbage",
        lambda good: good | {"numFiles": 0, "tableSizeBytes": 0, "allFiles": []},
        lambda good: good | {"protocol": {"minReaderVersion": 99, "minWriterVersion": 99}},
        lambda good: good | {"metadata": {"id": "x", "schemaString": schema(("z", "long"))}},
    ],
    ids=["empty", "garbage", "files", "protocol", "metadata"],
)
def test_a_wrong_checksum_changes_nothing_that_is_read(spoil: Spoil) -> None:
    uri = f"memory://checksums/{next(ROOTS)}"
    table = txlog.write(uri, pa.table({"a": [1, 2]}))
    table.append(pa.table({"a": [3]}))
    good = State([]).checksum()
    for version in range(2):
        put(context_of(table).store, spoil(good), version)
    again = txlog.Table(uri)
    assert not verify(context_of(table).store).ok
    assert again.snapshot == table.snapshot
    assert again.to_arrow()["a"].sort().to_pylist() == [1, 2, 3]
    assert txlog.Table(uri, version=0).to_arrow()["a"].to_pylist() == [1, 2]


def test_compare_takes_values_alone() -> None:
    store = store_of(PLAIN.commit())
    snapshot = load_snapshot(store)
    checksum = VersionChecksum.model_validate(PLAIN.checksum())
    compared = compare(checksum, snapshot, load_files(store, snapshot))
    assert all(item.agrees for item in compared)
    assert {item.field for item in compared} == is_stated(PLAIN.checksum())
    assert str(compared[-1]) == "allFiles: the same in both"
    again = VersionChecksum.model_validate(checksum.to_json())
    assert again == checksum
