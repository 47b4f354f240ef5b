"""Each remedy that `doctor` prints is followed to the letter, and the fault is gone.

A remedy names calls, or asks for a copy of files. The cases are compared with the code: a finding
without a case fails here.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txlog
from tests.verbs.test_doctor import edited, log_file, rows, table_at
from txlog.base.errors import TxlogError
from txlog.extend import open_sound
from txlog.verbs import doctor

Damage = Callable[[txlog.Table], Any]


def commit_file(table: txlog.Table, version: int) -> Path:
    return log_file(table, f"{version:020}.json")


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:30])


def scramble(path: Path) -> None:
    """Change the footer, not the size."""
    data = path.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[: -8 - footer] + bytes(footer) + data[-8:])


def plain(path: Path, **properties: str) -> txlog.Table:
    return table_at(path, **properties)


def checkpointed(path: Path) -> txlog.Table:
    table = table_at(path)
    table.maintenance.checkpoint()
    return table


def vectored(path: Path) -> txlog.Table:
    table = txlog.write(path, rows(0, 9000))
    table.append(rows(9000))
    table.delete("id % 3 = 0 AND id < 9000")
    return table


def without_features(table: txlog.Table) -> None:
    """Commit another protocol, as a faulty writer would."""
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    commit_file(table, table.version + 1).write_text(json.dumps(protocol) + "\n")


def with_blobs(path: Path) -> txlog.Table:
    table = txlog.Table.create(path, pa.schema([("id", pa.int64()), txlog.blob("b", above=3)]))
    table.append(pa.table({"id": [1, 2], "b": [b"12345", b"1"]}))
    return table


def with_sidecars(path: Path) -> txlog.Table:
    table = table_at(path, **{"delta.checkpointPolicy": "v2"})
    table.maintenance.checkpoint()
    return table


def in_parts(table: txlog.Table) -> None:
    (whole,) = log_file(table, "").glob("*.checkpoint.parquet")
    stem = whole.name.partition(".")[0]
    whole.rename(whole.with_name(f"{stem}.checkpoint.0000000001.0000000002.parquet"))
    log_file(table, "_last_checkpoint").unlink()


def disordered(path: Path) -> txlog.Table:
    """Return a table with two files that overlap in the column by which rows are sorted."""
    table = txlog.write(path, pa.table({"id": [1, 3]}), properties={"txlog.sortBy": "id"})
    table.append(pa.table({"id": [2, 4]}))
    return table


def half_indexed(path: Path) -> txlog.Table:
    """Return a table whose index has no part for files that were there before it."""
    table = table_at(path)
    table.indexes.create("id", name="by_id", build=False)
    table.append(rows(100))
    return table


def grown(path: Path) -> txlog.Table:
    table = table_at(path, **{"delta.checkpointInterval": "20"})
    for number in range(110):
        table.append(rows(number, 1))
    return table


def without_checkpoints(table: txlog.Table) -> None:
    for file in log_file(table, "").glob("*checkpoint*"):
        file.unlink()


def stray(table: txlog.Table) -> None:
    path = Path(table.uri, "stray.parquet")
    pq.write_table(rows(0), path)
    os.utime(path, (1_000_000, 1_000_000))


def skewed(path: Path) -> txlog.Table:
    data = pa.table({"n": list(range(20_004)), "p": [None] * 20_000 + ["a", "b", "c", "d"]})
    table = txlog.Table.create(
        path,
        pa.schema([("n", pa.int64()), ("p", pa.string())]),
        partition_by=["p"],
        properties={"delta.columnMapping.mode": "name"},
    )
    table.append(data)
    return table


def idle_feature(path: Path) -> txlog.Table:
    return table_at(path, **{"delta.feature.columnMapping": "supported"})


def silence(table: txlog.Table) -> None:
    path = commit_file(table, 4)
    text = re.sub(r',?"txlogCrc32":"[0-9a-f]*"', "", path.read_text())
    path.write_text(re.sub(r',"stats":"(\\.|[^"\\])*"', "", text))


def none(_: txlog.Table) -> None:
    """Nothing is damaged: the table itself is the finding."""


CASES: dict[str, tuple[Callable[[Path], txlog.Table], Damage]] = {
    "log-gap": (checkpointed, lambda table: commit_file(table, 1).unlink()),
    "version-damaged": (plain, lambda table: tear(commit_file(table, 5))),
    "commit-damaged": (checkpointed, lambda table: tear(commit_file(table, 2))),
    "checkpoint-incomplete": (checkpointed, in_parts),
    "checkpoint-hint": (checkpointed, lambda t: log_file(t, "_last_checkpoint").write_text("{")),
    "log-long": (grown, without_checkpoints),
    "checksum": (
        plain,
        lambda table: log_file(table, f"{table.version:020}.crc").write_text(
            '{"tableSizeBytes":1,"numFiles":99,"numMetadata":1,"numProtocol":1}'
        ),
    ),
    "times": (plain, lambda table: os.utime(commit_file(table, 2), (1_000_000, 1_000_000))),
    "file-missing": (plain, lambda table: Path(table.scan().file_uris()[-1]).unlink()),
    "vector-missing": (vectored, lambda t: next(Path(t.uri).glob("**/*.bin")).unlink()),
    "pack-missing": (with_blobs, lambda t: next(Path(t.uri).glob("_blobs/*")).unlink()),
    "sidecar-missing": (
        with_sidecars,
        lambda table: next(log_file(table, "_sidecars").iterdir()).unlink(),
    ),
    "file-size": (plain, lambda table: tear(Path(table.scan().file_uris()[-1]))),
    "file-damaged": (plain, lambda table: scramble(Path(table.scan().file_uris()[-1]))),
    "orphans": (plain, stray),
    "small-files": (grown, none),
    "out-of-order": (disordered, none),
    "index-behind": (half_indexed, none),
    "deleted-rows": (plain, lambda table: table.delete("id < 5")),
    "skew": (skewed, none),
    "statistics-missing": (plain, silence),
    "statistics-wrong": (
        plain,
        lambda table: edited(table, lambda stats: stats["minValues"].update(id=33)),
    ),
    "features-unused": (idle_feature, none),
    "feature-missing": (vectored, without_features),
}
# Findings of which another test follows the remedy, or whose remedy is a decision of the user.
ELSEWHERE = {
    "log-damaged": "its remedy is that of the error, see tests/snapshot/test_salvage.py",
    "skew": "to partition or cluster by other columns is a choice",
}


def codes_in_the_code() -> set[str]:
    """Return the codes of all findings: the first argument, or the values of its loop."""
    tree = ast.parse(inspect.getsource(doctor))
    found: set[str] = set()
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Finding":
            first = call.args[0]
            if isinstance(first, ast.Constant):
                found.add(str(first.value))
                continue
            loops = (loop for loop in ast.walk(tree) if isinstance(loop, ast.For))
            found |= {
                str(row.elts[0].value)
                for loop in loops
                if call in set(ast.walk(loop)) and isinstance(loop.iter, ast.Tuple)
                for row in loop.iter.elts
                if isinstance(row, ast.Tuple) and isinstance(row.elts[0], ast.Constant)
            }
    return found


def test_each_finding_has_a_case() -> None:
    assert codes_in_the_code() == CASES.keys() | ELSEWHERE.keys()


CALL = re.compile(
    r"(?:(?:maintenance|optimize|alter|indexes)\.)?[a-z_]+\((?:[^()'\"]|'[^']*'|\"[^\"]*\")*\)"
)


def ways(remedy: str) -> list[str]:
    """Return the ways out that a remedy offers, one of which is sufficient."""
    return re.split(r",? or ", remedy)


def found_in(uri: str, code: str) -> doctor.Finding | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table, _ = open_sound(uri)
        return next((one for one in table.doctor(sample=None) if one.code == code), None)


def follow(way: str, uri: str, copy: Path, finding: doctor.Finding) -> None:
    """Do what a way out says."""
    if "from a copy" in way:
        for file in (one for one in copy.rglob("*") if one.is_file()):
            target = Path(uri, file.relative_to(copy))
            if not target.exists() or target.read_bytes() != file.read_bytes():
                target.parent.mkdir(exist_ok=True)
                shutil.copy2(file, target)
        return
    if "delete the checkpoint" in way:
        for file in Path(uri, "_delta_log").glob("*.checkpoint*"):
            file.unlink()
        return
    if "delete them" in way:
        assert finding.path is not None
        Path(uri, finding.path).unlink()
    calls = CALL.findall(way)
    assert calls, f"nothing to do: {way}"
    for call in calls:
        version = re.search(r"on version (\d+)", way)
        table = txlog.Table(uri, version=int(version[1])) if version else txlog.Table(uri)
        eval(f"table.{call}", {"table": table})


@pytest.mark.slow(cases=10)
@pytest.mark.spec("REC-11")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", sorted(CASES.keys() - ELSEWHERE.keys()))
def test_each_way_out_ends_the_fault(code: str, tmp_path: Path) -> None:
    make, damage = CASES[code]
    make(tmp_path / "copy")
    shutil.copytree(tmp_path / "copy", tmp_path / "t")
    damage(txlog.Table(tmp_path / "t"))
    finding = found_in(str(tmp_path / "t"), code)
    assert finding is not None
    for number, way in enumerate(ways(finding.remedy)):
        path = tmp_path / f"way{number}"
        shutil.copytree(tmp_path / "t", path)
        follow(way, str(path), tmp_path / "copy", finding)
        again = found_in(str(path), code)
        if code == "times":  # What it promises is about new versions.
            stamped = txlog.Table(path)
            stamped.append(rows(0))
            assert stamped.history(1)[0]["inCommitTimestamp"] is not None
            continue
        assert again is None, (way, again)
        assert txlog.Table(path).to_arrow().num_rows > 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("code", "arguments"), [("file-missing", {}), ("vector-missing", {}), ("file-size", {})]
)
def test_the_errors_of_readers_offer_what_helps(
    code: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    """The calls in the error of a scan end the error."""
    make, damage = CASES[code]
    make(tmp_path / "t")
    damage(txlog.Table(tmp_path / "t"))
    with pytest.raises(TxlogError) as caught:
        txlog.Table(tmp_path / "t").to_arrow(**arguments)
    finding = found_in(str(tmp_path / "t"), code)
    assert finding is not None
    for number, way in enumerate(ways(caught.value.remedy)):
        if not CALL.search(way):
            continue
        path = tmp_path / f"way{number}"
        shutil.copytree(tmp_path / "t", path)
        follow(way, str(path), path, finding)
        txlog.Table(path).to_arrow()
