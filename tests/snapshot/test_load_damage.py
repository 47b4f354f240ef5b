"""Damaged logs give the same result, or an error that names the file, never a wrong result."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from corpus import cases, require_corpus
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import txlog
from txlog.base.errors import LogCorruptError, NotFoundError, TxlogWarning
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.store.base import Store
from txlog.store.open import open_store

Files = dict[str, bytes]
LOG = "_delta_log/"


def answer(store: Store, version: int) -> Any:
    """Return all that a version is, but for where it was read from."""
    snapshot = load_snapshot(store, version=version)
    live = load_files(store, snapshot).live
    columns = ["path", "dv_id", "size", "partition_values", "modification_time", "tags"]
    controls = snapshot.controls
    return (
        snapshot.version,
        controls.protocol,
        controls.metadata,
        controls.txns,
        {name: value for name, value in controls.domains.items() if not value.removed},
        sorted(map(repr, live.select(columns).to_pylist(maps_as_pydicts="strict"))),
    )


@dataclass
class Log:
    """The files of a log, and what its latest version is."""

    files: Files
    version: int
    expected: Any

    def damaged(self, name: str, data: bytes | None) -> Store:
        store = open_store("memory://damaged")
        store.delete([info.name for info in store.list_tree("")])
        for path, held in self.files.items():
            now = data if path == name else held
            if now is not None:
                store.write_new(path, now)
        return store


def read_log(root: Path) -> Files:
    log = root / "_delta_log"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(log.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def make_log(root: Path) -> Log:
    files = read_log(root)
    version = txlog.Table(root).version
    log = Log(files, version, None)
    log.expected = answer(log.damaged("", None), version)
    return log


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Return a log that txlog wrote: every kind of action, two checkpoints, vectors."""
    root = tmp_path_factory.mktemp("own") / "t"
    table = txlog.Table.create(
        root,
        pa.schema([("a", pa.int64()), ("p", pa.string())]),
        ["p"],
        {"delta.checkpointInterval": "4"},
    )
    for number in range(10):
        rows = pa.table({"a": list(range(number * 10, number * 10 + 10)), "p": ["x", "y"] * 5})
        table.append(rows, txn=("loader", number), user_metadata="a note")
        if number % 3 == 2:
            table.delete(f"a = {number * 10}")
    return make_log(root)


kinds = st.sampled_from(["remove", "empty", "truncate", "scramble", "flip", "zero"])


@st.composite
def damages(draw: st.DrawFn) -> tuple[int, str, float, float, bytes]:
    return (
        draw(st.integers(0, 10_000)),
        draw(kinds),
        draw(st.floats(0, 1)),
        draw(st.floats(0, 1)),
        draw(st.binary(min_size=1, max_size=64)),
    )


def apply(data: bytes, kind: str, start: float, length: float, noise: bytes) -> bytes | None:
    """Return a file after damage; places are shares of its length."""
    at = min(int(start * len(data)), max(len(data) - 1, 0))
    match kind:
        case "remove":
            return None
        case "empty":
            return b""
        case "truncate":
            return data[:at]
        case "scramble":
            return data[:at] + noise + data[at + len(noise) :]
        case "flip":
            return data[:at] + bytes([data[at] ^ (1 << noise[0] % 8)]) + data[at + 1 :]
    end = min(len(data), at + 1 + int(length * 512))
    return data[:at] + bytes(end - at) + data[end:]


def check(log: Log, name: str, kind: str, data: bytes | None) -> str:
    """Open a damaged log, and return whether its answer is the same or an error."""
    store = log.damaged(name, data)
    bare = name.rsplit("/", 1)[-1]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TxlogWarning)
        try:
            found = answer(store, log.version)
            error = None
        except (LogCorruptError, NotFoundError) as caught_error:
            error = caught_error
    if error is not None:
        # Who is gone can only be told by the gap that it leaves.
        assert kind == "remove" or bare in str(error), (name, kind, error)
        return "error"
    assert found == log.expected, (name, kind)
    for warning in caught:
        text = str(warning.message)
        gone = kind == "remove" and (
            "_last_checkpoint names" in text or "only some of its parts" in text
        )
        assert bare in text or gone, (name, kind, text)
    return "same"


@pytest.mark.slow
@pytest.mark.spec("REC-9", "REC-10")
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damages())
@example((0, "truncate", 0.99, 0, b"x"))
def test_any_damage_to_a_log_of_txlog(own: Log, damage: Any) -> None:
    held_to(own, damage)


@pytest.mark.exhaustive
@settings(
    deadline=None,
    max_examples=5000,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(damages())
def test_any_damage_to_a_log_of_txlog_at_length(own: Log, damage: Any) -> None:
    held_to(own, damage)


def held_to(log: Log, damage: Any) -> None:
    pick, kind, *where = damage
    name = sorted(log.files)[pick % len(log.files)]
    data = apply(log.files[name], kind, *where)
    if data != log.files[name]:
        outcome = check(log, name, kind, data)
        # All commits are there, so only those that no checkpoint covers are needed.
        assert outcome == "same" or name in needed(log), (name, kind)


def needed(log: Log) -> set[str]:
    newest = max(int(name[len(LOG) :][:20]) for name in log.files if ".checkpoint." in name)
    return {f"{LOG}{version:020d}.json" for version in range(newest + 1, log.version + 1)}


def test_every_line_of_a_commit_that_is_torn_off_is_noticed(own: Log) -> None:
    name = f"{LOG}{own.version:020d}.json"
    whole = own.files[name]
    for at, byte in enumerate(whole):
        if byte == ord("\n") and at + 1 < len(whole):
            for end in (at, at + 1):
                assert check(own, name, "truncate", whole[:end]) == "error"


# Logs of other writers: checkpoints of all forms, sidecars, compactions ---------------------------

FORMS = [
    "delta_golden/multi-part-checkpoint",
    "kernel_rs/v2-checkpoints-parquet-with-sidecars",
    "kernel_rs/v2-classic-checkpoint-json",
    "kernel_rs/compacted-log-files-table",
    "kernel_rs/v1-single-part-struct-stats-only",
    "delta_rs/checkpoint-cdf-table",
    "delta_kernel_defaults/kernel-pagination-v2-checkpoint-json",
]


@cache
def foreign(name: str) -> Log:
    require_corpus()
    (path,) = [case.path for case in cases() if case.name == name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TxlogWarning)
        return make_log(path)


def wholesale(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """Yield what can befall a file that has no checksum of its own, and be noticed."""
    yield "remove", None
    yield "empty", b""
    yield "truncate", data[: len(data) // 2]
    yield "truncate", data[:-7]
    yield "scramble", bytes(byte ^ 0x5A for byte in data)
    yield "scramble", bytes(len(data))
    yield "scramble", data[: len(data) // 3] + bytes(64) + data[len(data) // 3 + 64 :]


@pytest.mark.slow(cases=3)
@pytest.mark.spec("REC-10")
@pytest.mark.parametrize("name", FORMS)
def test_damage_to_logs_of_other_writers(name: str) -> None:
    log = foreign(name)
    outcomes = {
        (path, kind, check(log, path, kind, data))
        for path, held in log.files.items()
        for kind, data in wholesale(held)
        if data != held and not _is_at_a_line(held, data)
    }
    for path, kind, outcome in outcomes:
        bare = path.removeprefix(LOG)
        if bare == "_last_checkpoint" or bare.endswith(".crc"):
            assert outcome == "same", (path, kind)
    assert any(outcome == "same" for _, _, outcome in outcomes)


def _is_at_a_line(held: bytes, data: bytes | None) -> bool:
    """Whether whole lines were cut off: nobody can miss them who has no checksum."""
    return data is not None and held.startswith(data) and held[len(data) :][:1] == b"\n"
