"""Every checksum of the corpus from another engine, compared with what txlog reads."""

import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from corpus import Case, cases, require_corpus, rows_sha256

import txlog
from txlog.extend import context_of
from txlog.snapshot.checksum import ChecksumReport, read_checksum, verify_checksum
from txlog.snapshot.live_files import load_files
from txlog.store.open import open_store

# The fields of each checksum that are wrong, and why; all others agree.
WRONG: dict[tuple[str, int], set[str]] = {
    # Made by hand to have every field; its commit has neither files, transactions nor domains,
    # and in-commit timestamps are not enabled.
    ("kernel_rs/crc-full", 0): {
        "numFiles", "tableSizeBytes", "allFiles", "fileSizeHistogram", "setTransactions",
        "domainMetadata", "inCommitTimestampOpt", "deletedRecordCountsHistogramOpt",
    },
    # The commit's in-commit timestamp was set back by hand, to before that of version 0.
    ("delta_rs/cdc_ict_table", 1): {"inCommitTimestampOpt"},
}  # fmt: skip

# There is nothing but the checksum, and that is no JSON.
MALFORMED = {"kernel_rs/crc-malformed"}

# Every commit has an `x` behind each object, so only the version of the checkpoint opens.
LOG_DAMAGED = {"trino/databricks73/person", "trino/databricks73/person_without_checkpoints"}

FIELDS = {
    "tableSizeBytes", "numFiles", "numMetadata", "numProtocol", "inCommitTimestampOpt",
    "setTransactions", "domainMetadata", "metadata", "protocol", "fileSizeHistogram", "allFiles",
    "numDeletedRecordsOpt", "numDeletionVectorsOpt", "deletedRecordCountsHistogramOpt",
}  # fmt: skip


def checksums(case: Case) -> list[Path]:
    return sorted((case.path / "_delta_log").glob("[0-9]*.crc"))


WITH_CHECKSUMS = [case for case in cases() if checksums(case)]


def test_the_corpus_is_there() -> None:
    require_corpus()
    names = {case.name for case in WITH_CHECKSUMS}
    assert {name for name, _ in WRONG} | MALFORMED | LOG_DAMAGED <= names
    assert sum(len(checksums(case)) for case in WITH_CHECKSUMS) > 150


@contextmanager
def damage_allowed() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", txlog.TxlogWarning)
        yield


def verified(table: txlog.Table) -> ChecksumReport:
    return verify_checksum(
        context_of(table).store, table.snapshot, load_files(context_of(table).store, table.snapshot)
    )


def stated(path: Path) -> set[str]:
    names = set(json.loads(path.read_bytes()))
    return {"fileSizeHistogram" if name == "histogramOpt" else name for name in names} & FIELDS


@pytest.mark.slow
@pytest.mark.parametrize("case", WITH_CHECKSUMS, ids=lambda case: case.name)
def test_checksums_agree_with_the_log(case: Case) -> None:
    for path in checksums(case):
        version = int(path.stem)
        if case.name in MALFORMED:
            with pytest.raises(txlog.LogCorruptError, match=path.name):
                read_checksum(open_store(case.path), version)
            continue
        try:
            with damage_allowed():
                table = txlog.Table(case.path, version=version)
        except txlog.UnsupportedFeatureError as error:
            pytest.skip(f"txlog lacks {', '.join(error.features)}")
        except txlog.LogCorruptError:
            assert case.name in LOG_DAMAGED
            continue
        report = verified(table)
        assert report.found
        assert set(report.checked) == stated(path)
        wrong = WRONG.get((case.name, version), set())
        assert {problem.field for problem in report.problems} == wrong, report


@pytest.mark.parametrize("name", sorted({name for name, _ in WRONG}))
def test_a_wrong_checksum_changes_nothing_that_is_read(name: str, tmp_path: Path) -> None:
    require_corpus()
    (case,) = [case for case in WITH_CHECKSUMS if case.name == name]
    for path in case.path.rglob("*"):
        copy = tmp_path / path.relative_to(case.path)
        if path.is_file() and path.suffix != ".crc":
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    for path in checksums(case):
        version = int(path.stem)
        held, bare = txlog.Table(case.path, version=version), txlog.Table(tmp_path, version=version)
        assert verified(held).found
        assert not verified(bare).found
        assert held.snapshot.controls == bare.snapshot.controls
        assert held.files().equals(bare.files())
        assert rows_sha256(held.to_arrow()) == rows_sha256(bare.to_arrow())
