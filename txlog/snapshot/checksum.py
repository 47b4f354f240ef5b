"""Version checksums: compare the `.crc` file of a version with its log.

Rules: the Delta protocol, "Version Checksum File".
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import orjson
import pyarrow as pa
from pydantic import AliasChoices, Field, ValidationError, model_validator

from txlog.actions.action import Action, Long
from txlog.actions.file import Add
from txlog.actions.table import DomainMetadata, Metadata, Protocol, Txn
from txlog.base.arrow import arrow_array, pc
from txlog.base.errors import LogCorruptError, NotFoundError
from txlog.fragments.rows import deleted_counts
from txlog.log.names import log_path
from txlog.log.paths import canonical_keys
from txlog.reconcile.files import FileState
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store

_REMEDY = "No version needs this file. Restore it from a copy, or delete it"


class FileSizeHistogram(Action):
    """Files and their bytes by size: bin i begins at boundary i; the last bin has no end."""

    sorted_bin_boundaries: list[Long]  # Bytes, from 0 upwards.
    file_counts: list[Long]
    total_bytes: list[Long]

    @model_validator(mode="after")
    def _check_bins(self) -> FileSizeHistogram:
        starts = self.sorted_bin_boundaries
        if not len(starts) == len(self.file_counts) == len(self.total_bytes):
            raise ValueError("the numbers of boundaries, counts and bytes differ")
        if starts[:1] != [0] or any(low >= high for low, high in pairwise(starts)):
            raise ValueError("the boundaries do not ascend from 0")
        return self


class DeletedRecordCountsHistogram(Action):
    """The files by their number of deleted rows."""

    deleted_record_counts: list[Long]


class VersionChecksum(Action):
    """The content of a `.crc` file.

    The protocol also requires `metadata` and `protocol`, but old writers omit them.
    """

    txn_id: str | None = None
    table_size_bytes: Long
    num_files: Long
    num_metadata: Long
    num_protocol: Long
    in_commit_timestamp_opt: Long | None = None  # Milliseconds since the epoch, UTC.
    set_transactions: list[Txn] | None = None
    domain_metadata: list[DomainMetadata] | None = None
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    file_size_histogram: FileSizeHistogram | None = Field(
        default=None,
        # Spark writes the second name.
        validation_alias=AliasChoices("fileSizeHistogram", "histogramOpt"),
    )
    all_files: list[Add] | None = None  # Only for small tables.
    num_deleted_records_opt: Long | None = None
    num_deletion_vectors_opt: Long | None = None
    deleted_record_counts_histogram_opt: DeletedRecordCountsHistogram | None = None


def decode_checksum(data: bytes, *, path: str) -> VersionChecksum:
    """Parse the bytes of a `.crc` file.

    Raises
    ------
    LogCorruptError
        The bytes are not exactly one JSON object, or a field is missing or has a wrong type. `path`
        names the file in the error.
    """
    try:
        return VersionChecksum.model_validate(orjson.loads(data))
    except orjson.JSONDecodeError as error:
        raise LogCorruptError(
            path=path, reason=f"one complete JSON object was expected: {error}", remedy=_REMEDY
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        raise LogCorruptError(
            path=path,
            field=".".join(map(str, first["loc"])) or None,
            reason=first["msg"],
            remedy=_REMEDY,
        ) from error


# Deleted rows of a file at which each bin of the histogram begins.
_DELETED_BINS = (0, 1, *(10**power for power in range(1, 8)), 2**31 - 1)
_SHOWN = 5  # The most differences of one field to show.
_WIDTH = 200  # The most characters of one difference to show.

_ADVICE = """\
The log decides: txlog reads nothing from a checksum. But if one engine wrote both, one of them may
have been damaged or changed since then: compare both with a copy of the table. If the log is right,
the checksum may be deleted."""
_IF_MALFORMED = """\
Nothing was compared. The table can be read without this file: restore the file from a copy, or
delete it."""

_Fact = tuple[object, ...]


@dataclass(frozen=True)
class Comparison:
    """The value of a field in the checksum and its value according to the log.

    For a field with many parts, `stated` and `found` contain only the parts that the other side
    lacks, as text.
    """

    field: str  # Its name in the checksum, such as `numFiles`.
    stated: int | tuple[str, ...]
    found: int | tuple[str, ...] | None  # None: the log has no such value.

    @property
    def agrees(self) -> bool:
        """Whether both values are equal."""
        return self.stated == self.found

    def __str__(self) -> str:
        if isinstance(self.stated, tuple) and isinstance(self.found, tuple):
            sides = (("checksum", self.stated), ("log", self.found))
            parts = [f"only the {side} has {_listed(texts)}" for side, texts in sides if texts]
            return f"{self.field}: {'; '.join(parts) or 'the same in both'}"
        found = "nothing" if self.found is None else self.found
        return f"{self.field}: the checksum says {self.stated}, the log {found}"


@dataclass(frozen=True)
class Malformed:
    """The checksum cannot be read, so nothing was compared."""

    reason: str
    field: str | None = None

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}" if self.field else self.reason


@dataclass(frozen=True)
class ChecksumReport:
    """The result of comparing a version with its checksum. `str` of it is for people."""

    version: int
    path: str  # The path of the checksum, relative to the table's root, even if it does not exist.
    found: bool
    checked: tuple[str, ...] = ()  # The fields that were compared.
    problems: tuple[Comparison | Malformed, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no difference. A missing checksum is allowed, so then it is true too."""
        return not self.problems

    def __str__(self) -> str:
        if not self.found:
            return f"Version {self.version} has no checksum ({self.path}): nothing was checked."
        if self.ok:
            fields = ", ".join(self.checked)
            return f"Version {self.version} agrees with its checksum ({self.path}) in {fields}."
        lines = "".join(f"  {problem}\n" for problem in self.problems)
        if self.checked:
            head = f"Version {self.version} does not agree with its checksum ({self.path}):"
            return f"{head}\n{lines}{_ADVICE}"
        head = f"The checksum of version {self.version} ({self.path}) cannot be read:"
        return f"{head}\n{lines}{_IF_MALFORMED}"


def read_checksum(store: Store, version: int) -> VersionChecksum | None:
    """Return the checksum of a version, or None if it has none.

    Raises
    ------
    LogCorruptError
        The file is not exactly one JSON object, or a field is missing or of a wrong type.
    """
    path = checksum_path(version)
    try:
        data = store.read(path)
    except NotFoundError:
        return None
    return decode_checksum(data, path=path)


@dataclass(frozen=True)
class LiveNumbers:
    """What checksums say of the live files of a version, as numbers in any order."""

    sizes: pa.Array  # Bytes.
    deleted: pa.Array  # Deleted rows of each file.
    vectors: int  # Files with a deletion vector.
    rows: Callable[[], pa.Table]  # Their paths, `dv_id`s and sizes; only few checksums need them.


def live_numbers(live: pa.Table) -> LiveNumbers:
    """Return the numbers of live `FILE_ROWS`. Pure."""
    vectors = live.num_rows - live["dv_id"].null_count
    return LiveNumbers(live["size"], deleted_counts(live), vectors, lambda: live)


def verify_checksum(
    store: Store, snapshot: Snapshot, files: FileState | LiveNumbers
) -> ChecksumReport:
    """Compare a version with its checksum, and report what differs.

    Reading the table does not use the checksum. A missing checksum is not a problem. An unreadable
    checksum is reported and does not raise.

    Parameters
    ----------
    files
        The files of the snapshot (`load_files`), or their numbers.
    """
    path = checksum_path(snapshot.version)
    try:
        checksum = read_checksum(store, snapshot.version)
    except LogCorruptError as error:
        problem = Malformed(error.reason, error.field)
        return ChecksumReport(snapshot.version, path, True, problems=(problem,))
    if checksum is None:
        return ChecksumReport(snapshot.version, path, False)
    compared = compare(checksum, snapshot, files)
    return ChecksumReport(
        snapshot.version,
        path,
        True,
        checked=tuple(item.field for item in compared),
        problems=tuple(item for item in compared if not item.agrees),
    )


def compare(
    checksum: VersionChecksum, snapshot: Snapshot, files: FileState | LiveNumbers
) -> tuple[Comparison, ...]:
    """Compare all fields of a checksum with a snapshot and its files.

    Pure. `txnId` is not compared, because no snapshot has it. The in-commit timestamp is not
    compared if the version's own commit is gone, or if the store has no time for it: no other file
    has this timestamp. The order of lists (except columns) and the spelling of paths and of a
    schema's JSON make no difference. If `delta.setTransactionRetentionDuration` is set, a dated
    transaction that only one side has is skipped: it may have expired on the other side.

    Returns
    -------
    One comparison for each field compared, whether it agrees or not.
    """
    numbers = live_numbers(files.live) if isinstance(files, FileState) else files
    return (*_compare_controls(checksum, snapshot), *_compare_files(checksum, numbers))


def _compare_controls(checksum: VersionChecksum, snapshot: Snapshot) -> Iterator[Comparison]:
    # Each snapshot has exactly one metadata and one protocol.
    yield Comparison("numMetadata", checksum.num_metadata, 1)
    yield Comparison("numProtocol", checksum.num_protocol, 1)
    if checksum.metadata is not None:
        stated, found = _metadata_facts(checksum.metadata), _metadata_facts(snapshot.metadata)
        yield _comparison("metadata", "{}={}", stated, found)
    if checksum.protocol is not None:
        stated, found = _protocol_facts(checksum.protocol), _protocol_facts(snapshot.protocol)
        yield _comparison("protocol", "{}={}", stated, found)
    if checksum.in_commit_timestamp_opt is not None:
        enabled = snapshot.is_active("inCommitTimestamp")
        if snapshot.head_ms is not None or not enabled:
            stamp = snapshot.timestamp_ms if enabled else None
            yield Comparison("inCommitTimestampOpt", checksum.in_commit_timestamp_opt, stamp)
    if checksum.set_transactions is not None:
        yield _compare_transactions(checksum.set_transactions, snapshot)
    if checksum.domain_metadata is not None:
        yield _comparison(
            "domainMetadata",
            "{}{} {}",
            _domain_facts(checksum.domain_metadata),
            _domain_facts(item for item in snapshot.controls.domains.values() if not item.removed),
        )


def _compare_transactions(stated: Sequence[Txn], snapshot: Snapshot) -> Comparison:
    found = snapshot.controls.txns
    may_expire = snapshot.properties.get("delta.setTransactionRetentionDuration") is not None
    in_both = {txn.app_id for txn in stated} & set(found)

    def facts(txns: Iterable[Txn]) -> Iterator[_Fact]:
        for txn in txns:
            if txn.app_id in in_both or txn.last_updated is None or not may_expire:
                yield txn.app_id, txn.version

    return _comparison("setTransactions", "{} at version {}", facts(stated), facts(found.values()))


def _compare_files(checksum: VersionChecksum, live: LiveNumbers) -> Iterator[Comparison]:
    yield Comparison("numFiles", checksum.num_files, len(live.sizes))
    size = pc.sum(live.sizes).as_py() or 0
    yield Comparison("tableSizeBytes", checksum.table_size_bytes, size)
    if checksum.file_size_histogram is not None:
        histogram = checksum.file_size_histogram
        starts = histogram.sorted_bin_boundaries
        yield _comparison(
            "fileSizeHistogram",
            "from {} bytes: {} files of {} bytes",
            zip(starts, histogram.file_counts, histogram.total_bytes, strict=True),
            _bins(live.sizes, starts),
        )
    if checksum.num_deletion_vectors_opt is not None:
        vectors = checksum.num_deletion_vectors_opt
        yield Comparison("numDeletionVectorsOpt", vectors, live.vectors)
    if checksum.num_deleted_records_opt is not None:
        rows = pc.sum(live.deleted).as_py() or 0
        yield Comparison("numDeletedRecordsOpt", checksum.num_deleted_records_opt, rows)
    if checksum.deleted_record_counts_histogram_opt is not None:
        counts = checksum.deleted_record_counts_histogram_opt.deleted_record_counts
        yield _comparison(
            "deletedRecordCountsHistogramOpt",
            "bin {}: {} files",
            enumerate(counts),
            enumerate(count for _, count, _ in _bins(live.deleted, _DELETED_BINS)),
        )
    if checksum.all_files is not None:
        files = checksum.all_files
        vectors_of = (file.deletion_vector for file in files)
        stated = pa.table(
            {
                "path": arrow_array([file.path for file in files], pa.string()),
                "dv_id": arrow_array([v.unique_id if v else None for v in vectors_of], pa.string()),
                "size": arrow_array([file.size for file in files], pa.int64()),
            }
        )
        yield _comparison(
            "allFiles", "{}{} ({} bytes)", _file_facts(stated), _file_facts(live.rows())
        )


def _comparison(
    field: str, template: str, stated: Iterable[_Fact], found: Iterable[_Fact]
) -> Comparison:
    """Compare the parts of a field in any order; `template` formats one part."""
    left, right = Counter(stated), Counter(found)

    def texts(facts: Counter[_Fact]) -> tuple[str, ...]:
        return tuple(template.format(*fact) for fact in facts.elements())

    return Comparison(field, texts(left - right), texts(right - left))


def _domain_facts(domains: Iterable[DomainMetadata]) -> Iterator[_Fact]:
    for item in domains:
        yield item.domain, " (removed)" if item.removed else "", item.configuration


def _protocol_facts(protocol: Protocol) -> Iterator[_Fact]:
    yield "minReaderVersion", protocol.min_reader_version
    yield "minWriterVersion", protocol.min_writer_version
    for name in sorted(set(protocol.reader_features or ())):
        yield "readerFeature", name
    for name in sorted(set(protocol.writer_features or ())):
        yield "writerFeature", name


def _metadata_facts(metadata: Metadata) -> Iterator[_Fact]:
    for name, value in metadata.to_json().items():
        if name == "configuration":
            yield from ((f"property {key}", text) for key, text in value.items())
        elif name == "schemaString":
            yield from _schema_facts(value)
        else:
            yield name, value if isinstance(value, str | int) else _canonical(value)


def _schema_facts(text: str) -> Iterator[_Fact]:
    """Yield a schema's columns one by one, so that a difference names the column."""
    try:
        node = orjson.loads(text)
        columns = [(column["name"], _canonical(column)) for column in node["fields"]]
    except (ValueError, TypeError, KeyError):
        yield "schemaString", text
        return
    yield "columns", _canonical([name for name, _ in columns])
    for _, column in columns:
        yield "column", column


def _canonical(node: object) -> str:
    return orjson.dumps(node, option=orjson.OPT_SORT_KEYS).decode()


def _file_facts(rows: pa.Table) -> Iterator[_Fact]:
    vectors = ["" if text is None else f" with {text}" for text in rows["dv_id"].to_pylist()]
    paths = canonical_keys(rows["path"]).to_pylist()
    return iter(sorted(zip(paths, vectors, rows["size"].to_pylist(), strict=True)))


def _bins(values: pa.Array | pa.ChunkedArray, starts: Sequence[int]) -> Iterator[_Fact]:
    """Yield the start, the number of values and the sum of values of each bin."""
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    ordered = flat.drop_null().sort()
    sums = pc.cumulative_sum(ordered)
    # Searching needs a few of many values, so only those become Python's.
    firsts = [bisect_left(ordered, start, key=lambda value: value.as_py()) for start in starts]
    ends = [*firsts[1:], len(ordered)]
    for start, first, end in zip(starts, firsts, ends, strict=True):
        total = sums[end - 1].as_py() - (sums[first - 1].as_py() if first else 0) if end else 0
        yield start, end - first, total


def _listed(texts: tuple[str, ...]) -> str:
    shown = [text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…" for text in texts[:_SHOWN]]
    rest = len(texts) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def checksum_path(version: int) -> str:
    """Return the path of a version's checksum, relative to the table's root."""
    return log_path(f"{version:020d}.crc")
