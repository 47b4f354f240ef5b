"""Compare txlog's results for a table of the corpus with the known facts about it."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from corpus import Case, columns_sha256, rows_sha256

import txlog
from txlog.extend import context_of
from txlog.log.paths import decode_path
from txlog.protocol.features import CATALOG_MANAGED
from txlog.snapshot.live_files import load_files
from txlog.stats.files import num_records

Verdict = Literal["right", "wrong", "refused", "error"]


@dataclass(frozen=True)
class Finding:
    """What came of one version of one table."""

    case: Case
    version: int | None
    verdict: Verdict
    detail: str
    basis: str

    @property
    def is_latest(self) -> bool:
        return self.version is None


# A fault that a table must be refused for: part of the expectation → error, and what it names.
FAULTS: dict[str, tuple[type[txlog.TxlogError], str]] = {
    "FAIL unsupported protocol: reader 99": (txlog.UnsupportedFeatureError, "reader version 99"),
    # The checkpoint lacks it; the commits are all there, and theirs has no schema.
    "FAIL missing metaData": (
        txlog.LogCorruptError, "no commit .* contains a metaData|field='metaData.schemaString'"
    ),
    "FAIL as a table (no metaData)": (txlog.LogCorruptError, "field='metaData'|field='protocol'"),
    "FAIL as a table (no protocol)": (txlog.LogCorruptError, "no commit .* contains a protocol"),
    "FAIL table not found": (txlog.NotFoundError, "no Delta table here"),
    "FAIL unless implemented: reader feature geospatial": (
        txlog.UnsupportedFeatureError, "geospatial",
    ),
    "FAIL commit 12 missing": (txlog.LogCorruptError, "00000000000000000012.json"),
    "FAIL unknown reader feature catalogOwned": (txlog.UnsupportedFeatureError, "catalogOwned"),
    "FAIL (or hide) column: recorded type change": (
        txlog.UnsupportedFeatureError, "type changes that the protocol does not allow",
    ),
    "FAIL ReplayError: no commits and no checkpoints": (
        txlog.NotFoundError, "neither commits nor checkpoints|no Delta table here",
    ),
    "FAIL synthetic: 19-character DV id": (
        txlog.BadDeletionVectorError, "does not end in a UUID in Z85",
    ),
    "malformed JSON: stray 'x'": (txlog.LogCorruptError, "a complete JSON object.*line=1"),
    "not a table": (txlog.NotFoundError, "neither commits nor checkpoints"),
    "test hook file names": (txlog.BadDeletionVectorError, "deletion_vector_"),
}  # fmt: skip

_NO_FILES = {"num_files": 0, "size_bytes": 0, "paths_sha256": hashlib.sha256(b"").hexdigest()}

# The protocol decides otherwise than a reference; OVERRULED.md explains each.
OVERRULED: dict[str, dict[str, Any]] = {
    "delta_rs/table_with_edge_timestamps": {"rows_sha256": None},
    "trino/databricks73/old_timestamps": {"rows_sha256": None},
    "delta_golden/canonicalized-paths-special-a": _NO_FILES,
    "delta_golden/canonicalized-paths-special-b": _NO_FILES,
    "kernel_rs_golden/canonicalized-paths-special-a": _NO_FILES,
    "kernel_rs_golden/canonicalized-paths-special-b": _NO_FILES,
    "duckdb/column_mapping_id_mode_logical_names": {"rows_sha256": None},
    "duckdb/column_mapping_id_mode_nested_struct": {"rows_sha256": None},
}


def fault_of(case: Case) -> tuple[type[txlog.TxlogError], str] | None:
    """Return how a table must be refused, or None if it must be read."""
    expectation = case.index["expectation"]
    if not case.path.exists():  # Listed, but not extracted.
        return txlog.NotFoundError, "no Delta table here"
    return next((fault for key, fault in FAULTS.items() if expectation.startswith(key)), None)


def judge(case: Case) -> list[Finding]:
    """Return a finding for the table's fault, or one for each of its references."""
    fault = fault_of(case)
    if fault is not None:
        return [_judge_fault(case, *fault)]
    return [_judge(case, reference) for reference in case.references]


def _judge_fault(case: Case, kind: type[txlog.TxlogError], pattern: str) -> Finding:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", txlog.TxlogWarning)
            txlog.Table(case.path).to_arrow()
    except txlog.TxlogError as error:
        named = type(error) is kind and re.search(pattern, str(error))
        verdict: Verdict = "right" if named else "wrong"
        return Finding(case, None, verdict, f"refused: {error}", "expectation")
    except Exception as error:  # Nothing but our own errors may come out.
        return Finding(case, None, "error", repr(error), "expectation")
    return Finding(case, None, "wrong", "it was read, but is at fault", "expectation")


def opened(case: Case, version: int | None) -> txlog.Table:
    """Return a table; what a catalog would say of a managed one is taken from what is published."""
    with warnings.catch_warnings():
        # Some of these logs are damaged on purpose; reading them right is the point.
        warnings.simplefilter("ignore", txlog.TxlogWarning)
        catalog = None
        if CATALOG_MANAGED & set(case.index["reader_features"].split(",")):
            catalog = txlog.CatalogCommits(int(case.index["latest_version"]))
        return txlog.Table(case.path, version=version, catalog_commits=catalog)


def _judge(case: Case, reference: dict[str, Any]) -> Finding:
    version = None if reference["is_latest"] else int(reference["version"])
    basis = _basis(case, reference)
    try:
        table = opened(case, version)
        faults = list(_differences(case, reference, table))
        if case.index["expectation"].startswith("log-only"):
            faults.extend(_unread(table))
    except txlog.TxlogError as error:
        return Finding(case, version, "refused", str(error), basis)
    except Exception as error:
        return Finding(case, version, "error", repr(error), basis)
    return Finding(case, version, "wrong" if faults else "right", "; ".join(faults), basis)


def _basis(case: Case, reference: dict[str, Any]) -> str:
    expected = reference.get("expected")
    if expected and not expected.get("disputed"):
        return "upstream-expected"
    return str((reference.get("answer") or {}).get("basis") or "log only")


def _answer(reference: dict[str, Any]) -> dict[str, Any]:
    expected = reference.get("expected")
    if expected and not expected.get("disputed"):
        return dict(expected)
    return dict(reference.get("answer") or {})


def _differences(case: Case, reference: dict[str, Any], table: txlog.Table) -> Iterator[str]:
    stated = {"version": reference["version"], **_of_the_log(reference.get("replay") or {})}
    answer = _answer(reference)
    stated |= {
        name: answer[name]
        for name in ("rows", "rows_sha256", "columns_sha256")
        if answer.get(name) is not None
    }
    stated |= OVERRULED.get(case.name, {}) if reference["is_latest"] else {}
    found = dict(_found(table, stated))
    for name, value in stated.items():
        if value is not None and found[name] != value:
            yield f"{name} is {found[name]!r}, not {value!r}"


def _unread(table: txlog.Table) -> Iterator[str]:
    """Yield a fault if a table whose data files are not all here is read without an error."""
    there = [decode_path(path) for path in table.files()["path"].to_pylist()]
    gone = [path for path in there if not Path(table.uri, path).exists()]
    try:
        table.to_arrow()
    except txlog.TxlogError as error:
        # Where a clone's source is in another kind of store, following it must be allowed first.
        expected = txlog.DataFileError | txlog.UnsupportedFeatureError
        no_schema = getattr(error, "field", None) == "metaData.schemaString"
        if not gone or not (isinstance(error, expected) or no_schema):
            yield f"with {len(gone)} files gone it gives {error!r}"
    else:
        if gone:
            yield f"it was read without {gone[0]}"


_OF_THE_LOG = (
    "num_files", "num_tombstones", "num_dvs", "size_bytes", "partition_columns", "metadata_id",
    "configuration", "txns", "domains", "paths_sha256", "protocol", "rows_stats_minus_dv",
)  # fmt: skip


def _of_the_log(replay: dict[str, Any]) -> dict[str, Any]:
    found = {name: replay[name] for name in _OF_THE_LOG if name in replay}
    protocol = found.get("protocol") or {}
    return found | {"protocol": {name: x for name, x in protocol.items() if x is not None} or None}


def _found(table: txlog.Table, stated: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    snapshot = table.snapshot
    files = load_files(context_of(table).store, snapshot)
    live = files.live
    yield "version", table.version
    yield "num_files", live.num_rows
    yield "num_tombstones", files.tombstones.num_rows
    yield "num_dvs", live.num_rows - live["dv_id"].null_count
    yield "size_bytes", sum(live["size"].to_pylist())
    yield "partition_columns", table.partition_columns
    yield "metadata_id", table.metadata.id
    yield "configuration", dict(table.properties)
    yield "txns", {name: txn.version for name, txn in snapshot.controls.txns.items()}
    yield "domains", _domains(snapshot)
    yield "protocol", table.protocol.to_json()
    yield "rows_stats_minus_dv", _rows_by_statistics(live)
    yield "paths_sha256", _paths_sha256(live["path"].to_pylist())
    if stated.get("rows") is not None:
        yield "rows", table.count()
    if stated.get("rows_sha256") is not None:
        rows = table.to_arrow()
        assert rows.schema == table.schema
        assert rows.num_rows == table.count()
        yield "rows_sha256", rows_sha256(rows)
        yield "columns_sha256", columns_sha256(rows)


def _rows_by_statistics(live: pa.Table) -> int | None:
    rows = num_records(live)
    if rows.null_count:
        return None
    deleted = pc.struct_field(live["deletion_vector"].combine_chunks(), "cardinality")
    return int((pc.sum(rows).as_py() or 0) - (pc.sum(deleted).as_py() or 0))


def _domains(snapshot: Any) -> dict[str, str]:
    return {
        name: domain.configuration
        for name, domain in snapshot.controls.domains.items()
        if not domain.removed
    }


def _paths_sha256(paths: list[str]) -> str:
    return hashlib.sha256("\n".join(sorted(paths)).encode()).hexdigest()
