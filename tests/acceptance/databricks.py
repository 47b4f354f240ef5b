"""Tables that Databricks wrote for acceptance tests, with questions and answers, and the judge."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from corpus import array_values, canonical_text

import txlog

ROOT = Path(__file__).parents[3] / "shared" / "corpus" / "dbr"
ZONE = ZoneInfo("America/Los_Angeles")  # The session in which the answers were made.

# What Databricks says of a table at fault → what txlog's error has to say.
FAULTS = {
    "CANNOT_READ_FILE_FOOTER": "cannot be read as Parquet",
    "COLUMN_ALREADY_EXISTS": "two columns have this name",
    "DELTA_DUPLICATE_FILE_PATHS_IN_SAME_COMMIT": "names the same file twice",
    "DELTA_DV_CHECKSUM_MISMATCH": r"\[bad-deletion-vector\]",
    "DELTA_INVALID_PROTOCOL_VERSION": "requires writer version 7",
    "DELTA_MISSING_DELTA_TABLE": "the log has a gap",
    "DELTA_MISSING_PART_FILE": "a complete JSON object was expected",
    "DELTA_STATE_RECOVER_ERROR": "contains a (metaData|protocol) action|neither commits nor",
    "DELTA_TABLE_NOT_FOUND": "no Delta table here|neither commits nor",
    "DELTA_TABLE_RESTORE_VERSION_INVALID": "version",
    "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION": "is before the first version",
    "DELTA_UNSUPPORTED_DELETION_VECTOR_STORAGE_TYPE": "storage type 'x' is unknown",
    "DELTA_UNSUPPORTED_FEATURES_FOR_READ": "reader features that txlog lacks",
    "DELTA_UNSUPPORTED_READER_VERSION": "does not know the table's reader version",
    "DELTA_VERSIONS_NOT_CONTIGUOUS": "the log has a gap",
    "DELTA_VERSION_NOT_FOUND": "no such version|can reconstruct is 2",
    "FIELD_NOT_FOUND": "has no column",
}

# Questions that cannot be judged, with the reason.
OMITTED = {
    "DV-003/DV-003_metadata_file_path": "_metadata.file_path is Spark's own column",
    # Its two metaData actions are equal, so nothing is left open.
    "ct_duplicate_metadata/ct_duplicate_metadata_error": "the error is that of a local checksum",
    "tw_cdf_across_widening/tw_cdf_across_widening_cdf_all_versions": "it has no answer",
}

_TORN = "a complete JSON object was expected"
_NO_VERSION = "a whole number from 0 was expected, not -1"

# Questions that were captured wrongly, or that txlog does not answer, and the error that it raises.
OTHERWISE = {
    # The data, or a deletion vector at a temporary path, was not captured.
    "DV-008/DV-008_table2_latest": "the file is missing",
    "DV-009/DV-009_table2_latest_v1": "the file is missing",
    "dv_storage_type_p/dv_storage_type_p_read_after_absolute_path_dv": "there is no such file",
    # Another question says that the same table is refused.
    "ct_empty_delta_log/ct_empty_delta_log_snapshot": _NO_VERSION,
    "ct_missing_delta_log/ct_missing_delta_log_snapshot": _NO_VERSION,
    "ct_missing_metadata/ct_missing_metadata_snapshot": "contains a metaData action",
    "ct_missing_protocol/ct_missing_protocol_snapshot": "contains a protocol action",
    "dseReadNonDeltaPath/dseReadNonDeltaPath_snapshot": _NO_VERSION,
    "err_schema_empty/err_schema_empty_snapshot": _TORN,
    "log_err_missing_protocol/log_err_missing_protocol_snapshot": "contains a protocol action",
    "read_empty_path_tbl/read_empty_path_tbl_snapshot": _NO_VERSION,
    # The log is broken JSON, which Databricks read before it broke.
    "fc_null_fields_in_add/fc_null_fields_in_add_snapshot": _TORN,
    "stats_empty_string/stats_empty_string_snapshot": _TORN,
    # Databricks takes the last of two equal names in an object; JSON leaves it open.
    "ev_unknown_writer_feature/ev_unknown_writer_feature_snapshot": "occurs twice in one object",
    # A type that only a preview of Databricks has.
    "ds_multi_file_time": "reader features that txlog lacks: timeType-preview",
}


@dataclass(frozen=True)
class Question:
    """A question about a table, and its answer."""

    table: str
    name: str
    spec: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.table}/{self.name}"

    @property
    def folder(self) -> Path:
        return ROOT / self.table

    @property
    def fault(self) -> str | None:
        """The code of the error that is expected."""
        error = self.spec.get("error") or (self.spec.get("expected") or {}).get("error")
        return None if error is None else error["errorCode"]


@cache
def questions() -> dict[str, list[Question]]:
    """Return the questions about each table."""
    found: dict[str, list[Question]] = {}
    for path in sorted(ROOT.glob("*/specs/*.json")):
        table = path.parent.parent.name
        spec = json.loads(path.read_text(encoding="utf-8"))
        found.setdefault(table, []).append(Question(table, path.stem, spec))
    return found


def otherwise(question: Question) -> str | None:
    """Return the error by which txlog answers otherwise than Databricks; None if it does not."""
    return OTHERWISE.get(question.id, OTHERWISE.get(question.table))


def is_omitted(question: Question) -> bool:
    """Return whether a question is named in `OMITTED`, or is about lost times of files."""
    if {question.id, question.table} & OMITTED.keys():
        return True
    return "timestamp" in question.spec and not _has_times(question) and question.fault is None


def _has_times(question: Question) -> bool:
    """Return whether a table records the times of its commits."""
    info = json.loads((question.folder / "table_info.json").read_text(encoding="utf-8"))
    return info.get("properties", {}).get("delta.enableInCommitTimestamps") == "true"


def judge(question: Question) -> str | None:
    """Return what is wrong with txlog's answer; None if it is right."""
    expected = FAULTS[question.fault] if question.fault else otherwise(question)
    with warnings.catch_warnings():
        # Some of these logs are damaged on purpose; reading them right is the point.
        warnings.simplefilter("ignore", txlog.TxlogWarning)
        try:
            found = _answer(question)
        except txlog.TxlogError as error:
            if expected is not None and re.search(expected, str(error)):
                return None
            return f"refused: {error}"
    if expected is not None:
        return f"not refused, though expected: {expected}"
    return found


def _answer(question: Question) -> str | None:
    spec = question.spec
    table = txlog.Table(question.folder / "delta", **_moment(spec))
    if question.fault is not None or otherwise(question):
        table.to_arrow(where=spec.get("predicate"))
        return None
    match spec["type"]:
        case "read":
            rows = table.to_arrow(columns=spec.get("columns"), where=spec.get("predicate"))
            return _compared_rows(question, rows)
        case "cdf":
            changes = table.changes(spec["startVersion"], spec.get("endVersion")).to_arrow()
            return _compared_rows(question, changes)
        case "snapshot" | "snapshotConstruction":
            return _compared(_of_snapshot(table), _expected_snapshot(spec["expected"]))
        case "txn":
            expected = spec["expected"]
            found = table.transaction_version(expected["appId"])
            return _compared(found, expected["txnVersion"])
        case "domain_metadata":
            expected = spec["expected"]
            domain = table.snapshot.controls.domains[expected["domain"]]
            return _compared(
                {"configuration": domain.configuration, "removed": domain.removed},
                {name: expected[name] for name in ("configuration", "removed")},
            )
    return f"{spec['type']} is an unknown kind of question"


def _moment(spec: dict[str, Any]) -> dict[str, Any]:
    if "timestamp" in spec:
        return {"timestamp": datetime.fromisoformat(spec["timestamp"]).replace(tzinfo=ZONE)}
    return {"version": spec["version"]} if spec.get("version") is not None else {}


def _compared(found: Any, expected: Any) -> str | None:
    return None if found == expected else f"{found!r}, not {expected!r}"


def _of_snapshot(table: txlog.Table) -> dict[str, Any]:
    protocol, metadata = table.protocol, table.metadata
    return {
        "readers": (protocol.min_reader_version, sorted(protocol.reader_features or ())),
        "writers": (protocol.min_writer_version, sorted(protocol.writer_features or ())),
        "id": metadata.id,
        "schema": orjson.loads(metadata.schema_string or "null"),
        "partitions": list(metadata.partition_columns),
        "configuration": dict(metadata.configuration),
        "created": metadata.created_time,
        "name": metadata.name,
    }


def _expected_snapshot(expected: dict[str, Any]) -> dict[str, Any]:
    protocol, metadata = expected["protocol"], expected["metadata"]
    return {
        "readers": (protocol["minReaderVersion"], sorted(protocol.get("readerFeatures", ()))),
        "writers": (protocol["minWriterVersion"], sorted(protocol.get("writerFeatures", ()))),
        "id": metadata["id"],
        "schema": orjson.loads(metadata.get("schemaString", "null")),
        "partitions": metadata["partitionColumns"],
        "configuration": metadata["configuration"],
        "created": metadata.get("createdTime"),
        "name": metadata.get("name"),
    }


_LOST = "_commit_timestamp"  # The time of a file that was copied since.


def _compared_rows(question: Question, rows: pa.Table) -> str | None:
    count = question.spec["expected"]["rowCount"]
    if rows.num_rows != count:
        return f"{rows.num_rows} rows, not {count}"
    files = sorted((question.folder / "expected" / question.name / "expected_data").glob("*.parq*"))
    if not files:
        return None
    parts = [pq.ParquetFile(file, coerce_int96_timestamp_unit="us").read() for file in files]
    expected = pa.concat_tables(parts)
    if sorted(rows.column_names) != sorted(expected.column_names):
        return f"the columns {rows.column_names}, not {expected.column_names}"
    names = [name for name in sorted(rows.column_names) if name != _LOST]
    ours, theirs = _multiset(rows.select(names)), _multiset(expected.select(names))
    if ours == theirs:
        return None
    return f"{[*(ours - theirs)][:3]}, not {[*(theirs - ours)][:3]}"


def _multiset(rows: pa.Table) -> Counter[str]:
    columns = [
        [one for chunk in column.chunks for one in array_values(_numbers(chunk))]
        for column in rows.columns
    ]
    return Counter(canonical_text(list(row)) for row in zip(*columns, strict=True))


def _numbers(array: pa.Array) -> pa.Array:
    """Return intervals as Spark stores them: numbers of months, or of microseconds."""
    if pa.types.is_duration(array.type):
        return array.cast(pa.int64())
    if array.type == pa.month_day_nano_interval():
        months = [None if value is None else value.months for value in array.to_pylist()]
        return pa.array(months, pa.int32())
    return array
