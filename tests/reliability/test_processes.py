"""Processes run all verbs on one table, killed at any time or not, compared with a model.

The log tells which verbs came in which order; the model does them in it, one after the other. What
was acknowledged must be in the log once, what readers saw must be what the model has.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txlog
from tests.reliability.worker import rows, work

Row = tuple[int, int, str]


MOST_RETRIES = 30
"""How often a verb may be tried again beside 15 other writers."""


@dataclass
class Report:
    """What processes did to a table."""

    commits: dict[int, dict[str, Any]] = field(default_factory=dict)  # commitInfo, by version.
    planned: dict[str, dict[str, Any]] = field(default_factory=dict)
    done: dict[str, dict[str, Any]] = field(default_factory=dict)  # Of those that were told.
    took: dict[str, float] = field(default_factory=dict)
    retried: dict[str, int] = field(default_factory=dict)
    kills: int = 0
    faults: list[str] = field(default_factory=list)  # What processes said that ended by an error.

    def errors(self) -> list[str]:
        return [done["error"] for done in self.done.values() if "error" in done]


class Watched:
    """The log as it grows: clean-ups delete commits that the model needs."""

    def __init__(self, root: Path) -> None:
        self._log = root / "_delta_log"
        self.commits: dict[int, dict[str, Any]] = {}

    def look(self) -> None:
        version = len(self.commits)
        with suppress(FileNotFoundError):
            while True:
                text = (self._log / f"{version:020d}.json").read_text(encoding="utf-8")
                actions = [json.loads(line) for line in text.splitlines()]
                info = next(a["commitInfo"] for a in actions if "commitInfo" in a)
                info["changes"] = any("add" in a or "remove" in a for a in actions)
                self.commits[version] = info
                version += 1


CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.reliability.worker"])  # A new process starts at once.


def start(root: Path, folder: Path, name: str, seconds: float) -> BaseProcess:
    arguments = str(root), str(folder / name), name, seconds
    process = CONTEXT.Process(target=work, args=arguments)
    process.start()
    return process


def end(process: BaseProcess) -> None:
    process.kill()
    process.join()


def run(
    folder: Path, *, writers: int, readers: int, seconds: float, kill_every: float = 0.0
) -> Report:
    """Run processes; kill one now and then, and start another in its place."""
    root, ledgers = folder / "t", folder / "ledgers"
    ledgers.mkdir()
    properties = {"delta.checkpointInterval": "10", "delta.logRetentionDuration": "interval 1 days"}
    table = txlog.Table.create(root, rows(0, 1, "").schema, properties=properties)
    table.append(rows(0, 17, "first"))
    start(root, ledgers, "w0", 0).join()  # The server of processes has started by then.
    chance, report, watched = random.Random(1), Report(), Watched(root)
    names = [*(f"w{n}" for n in range(1, writers + 1)), *(f"reader{n}" for n in range(readers))]
    running = {name: start(root, ledgers, name, seconds) for name in names}
    made = writers + 1
    until, next_kill = time.monotonic() + seconds, time.monotonic() + 2 * kill_every
    try:
        while any(one.is_alive() for one in running.values()):
            watched.look()
            now = time.monotonic()
            if kill_every and next_kill < now < until:
                next_kill = now + chance.uniform(0.3, 1.7) * kill_every
                end(running.pop(chance.choice([name for name in running if name[0] == "w"])))
                report.kills += 1
                name, made = f"w{made}", made + 1
                running[name] = start(root, ledgers, name, until - now)
            time.sleep(0.1)
    finally:
        for one in running.values():
            end(one)
    report.faults = [path.read_text(encoding="utf-8") for path in ledgers.glob("*.err")]
    watched.look()
    report.commits = watched.commits
    for path in ledgers.glob("*[0-9]"):
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if "verb" in entry:
                report.planned[entry["note"]] = entry
            else:
                report.done[entry["note"]] = entry["done"]
                report.took[entry["note"]] = entry["took"]
                report.retried[entry["note"]] = entry["retried"]
    return report


def check(folder: Path, report: Report) -> None:
    """Hold the table, and what processes were told and saw, against the model."""
    table = txlog.Table(folder / "t")
    assert sorted(report.commits) == list(range(table.version + 1))
    notes = [info.get("userMetadata") for info in report.commits.values()]
    twice = {note: n for note, n in Counter(filter(None, notes)).items() if n > 1}
    assert twice == {}, "a verb is there twice"
    held = states(report)
    for note, done in report.done.items():
        version = done.get("version")
        if note.startswith("reader"):
            if version is not None:
                now = held[version]
                sums = [sum(row[0] for row in now), sum(row[1] for row in now)]
                assert (done["count"], done["sums"]) == (len(now), sums), note
        elif version is not None and report.planned[note]["verb"] != "checkpoint":
            assert report.commits[version].get("userMetadata") == note, "a commit is lost"
        elif "conflict" in done:
            assert note not in notes, "it was told to have failed, and is there"
    found = Counter(tuple(row.values()) for row in table.to_arrow().to_pylist())
    assert found == Counter(held[-1])


def states(report: Report) -> list[list[Row]]:
    """Return the rows of each version, by the model."""
    held: list[list[Row]] = []
    for version, info in sorted(report.commits.items()):
        if version == 0:
            held.append([])
        elif version == 1:
            held.append(rows_of(rows(0, 17, "first")))
        else:
            plan = report.planned.get(info.get("userMetadata") or "")
            if plan is not None and not info["changes"]:
                # It changed nothing in the version that it read; the commit records its `txn`.
                seen = held[: info["readVersion"] + 1]
                assert Counter(after(plan, info, seen)) == Counter(seen[-1]), plan
                plan = None
            held.append(held[-1] if plan is None else after(plan, info, held))
    return held


def rows_of(data: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in data.to_pylist()]  # type: ignore[misc]


def after(what: dict[str, Any], info: dict[str, Any], held: list[list[Row]]) -> list[Row]:
    """Do a verb by the model."""
    now, name = held[-1], what["note"].partition(":")[0]
    data = rows_of(rows(what["first"], what["count"], name))

    def some(row: Row) -> bool:
        return bool(row[0] % what["mod"] == what["rest"])

    match what["verb"]:
        case "append":
            return now + data
        case "delete":
            return [row for row in now if not some(row)]
        case "update":
            return [(row[0], row[1] + 1, row[2]) if some(row) else row for row in now]
        case "upsert":
            given = {row[0]: row for row in [*data, *rows_of(rows(what["rest"], 2, name))]}
            known = {row[0] for row in now}
            kept = [given.get(row[0], row) for row in now]
            return kept + [row for key, row in given.items() if key not in known]
        case "replace":
            kept = [row for row in now if row[0] != what["rest"]]
            return kept + rows_of(rows(what["rest"], 1, name))
        case "transaction":
            return [row for row in now if not some(row)] + data
        case "restore" if info["operation"] == "RESTORE":
            return held[int(info["operationParameters"]["version"])]
    return now


@pytest.mark.spec("GUA-3", "GUA-5")
def test_processes_may_be_killed(tmp_path: Path) -> None:
    report = run(tmp_path, writers=2, readers=0, seconds=4, kill_every=1.5)
    check(tmp_path, report)
    assert report.faults == report.errors() == []


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-3", "GUA-5")
def test_four_processes_are_killed_for_a_minute(tmp_path: Path) -> None:
    report = run(tmp_path, writers=4, readers=1, seconds=60, kill_every=1.5)
    check(tmp_path, report)
    assert report.faults == report.errors() == []
    assert report.kills > 15
    print(told(report))


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-3", "GUA-9")
def test_sixteen_processes_load_a_table_for_minutes(tmp_path: Path) -> None:
    """`TXLOG_LOAD_S` seconds; 300 if it is not set."""
    seconds = float(os.environ.get("TXLOG_LOAD_S", "300"))
    report = run(tmp_path, writers=16, readers=2, seconds=seconds)
    print(told(report))
    check(tmp_path, report)
    assert report.faults == report.errors() == []
    each = Counter(note.partition(":")[0] for note, done in report.done.items() if done)
    print(dict(each))
    assert len(each) == 18, "no progress of a process"
    # Compared with other writers: on a busy machine a limit in seconds would fail at random.
    writers = [count for name, count in each.items() if name[0] == "w"]
    assert 10 * min(writers) >= sum(writers) / 16, "a writer starves"
    assert max(report.retried.values()) <= MOST_RETRIES


def told(report: Report) -> str:
    verbs = Counter(
        f"{report.planned[note]['verb']}{'' if 'conflict' not in done else ' refused'}"
        for note, done in report.done.items()
    )
    again = sorted(report.retried.values())
    gave_up = sum(done.get("gave_up", False) for done in report.done.values())
    slow = sorted(report.took, key=lambda note: report.took[note])[-5:]
    longest = [(note, report.planned[note]["verb"], report.took[note]) for note in slow]
    return (
        f"{len(report.commits)} commits, {len(report.done)} verbs, {report.kills} kills, "
        f"the longest in seconds: {longest}; {gave_up} gave up, of 100 verbs 1 was tried again "
        f"{again[-len(again) // 100]} times or more, at most {again[-1]}; {dict(verbs)}"
    )
