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
from tests.reliability import worker
from tests.reliability.worker import TRAVEL_S, entries, rows, unneeded_before, work

Row = tuple[int, int, str]


MOST_RETRIES = 30
"""How often a verb may be tried again beside 15 other writers."""

PACE_S = 5
"""In so many seconds for each process of a run, each must come forward once, on average.

With thirty busy processes on two cores, eighteen of them of the run, the slowest needed 2.6 s.
"""

FULL_LOAD_S = 300

MAY_LOSE = {
    ("property", "CON-2"), ("pin", "CON-1"), ("pin", "CON-2"), ("pin", "CON-25"),
    ("restore", "CON-25"),
}  # fmt: skip
"""Verbs, and the rules that may refuse them: metadata beside metadata, two first pins, which both
change the protocol, and what refers to files beside a vacuum.
"""


@dataclass
class Report:
    """What processes did to a table."""

    commits: dict[int, dict[str, Any]] = field(default_factory=dict)  # commitInfo, by version.
    planned: dict[str, dict[str, Any]] = field(default_factory=dict)
    done: dict[str, dict[str, Any]] = field(default_factory=dict)  # Of those that were told.
    took: dict[str, float] = field(default_factory=dict)
    retried: dict[str, int] = field(default_factory=dict)
    places: list[list[str]] = field(default_factory=list)  # Names, one after the other in each.
    kills: int = 0
    warned: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # What processes said that ended by an error.

    def errors(self) -> list[str]:
        return [done["error"] for done in self.done.values() if "error" in done]

    def refused(self) -> Counter[tuple[str, str]]:
        """Return how often a rule refused a verb."""
        told = [(note, done) for note, done in self.done.items() if "conflict" in done]
        return Counter((self.planned[note]["verb"], done["conflict"]) for note, done in told)

    def deleted(self, verb: str) -> int:
        """Return how many files all clean-ups of a kind deleted that lived to tell it."""
        told = [done for note, done in self.done.items() if self.planned[note]["verb"] == verb]
        return sum(done.get("deleted", 0) for done in told)

    def progress(self) -> tuple[list[int], list[int]]:
        """Return the commits in the log of each place of a writer, and each reader's reads."""
        landed = Counter(_name(info.get("userMetadata") or "") for info in self.commits.values())
        reads = Counter(_name(note) for note, done in self.done.items() if "count" in done)
        writers = [names for names in self.places if names[0].startswith("w")]
        readers = [names for names in self.places if names[0].startswith("reader")]
        of_writers = [sum(landed[name] for name in names) for names in writers]
        return of_writers, [reads[name] for (name,) in readers]


def _name(note: str) -> str:
    return note.partition(":")[0]


class Watched:
    """The log as it grows: clean-ups delete commits that the model needs."""

    def __init__(self, root: Path, ledger: Path) -> None:
        self._log, self._ledger = root / "_delta_log", ledger
        self.commits: dict[int, dict[str, Any]] = {}

    def look(self) -> None:
        """Read what is new. By the ledger, no clean-up deletes what comes after the last look."""
        version, at = len(self.commits), time.time()
        with suppress(FileNotFoundError):
            while True:
                text = (self._log / f"{version:020d}.json").read_text(encoding="utf-8")
                actions = [json.loads(line) for line in text.splitlines()]
                info = next(a["commitInfo"] for a in actions if "commitInfo" in a)
                info["changes"] = any("add" in a or "remove" in a for a in actions)
                self.commits[version] = info
                version += 1
        with self._ledger.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": at}) + "\n")


CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.reliability.worker"])  # A new process starts at once.


def start(root: Path, folder: Path, name: str, seconds: float) -> BaseProcess:
    arguments = str(root), str(folder / name), name, seconds
    process = CONTEXT.Process(target=work, args=arguments)
    process.start()
    return process


def end(process: BaseProcess, ledger: Path) -> None:
    """Kill a process, and tell the others by its ledger that nothing of it runs any more."""
    process.kill()
    process.join()
    if ledger.exists():
        tell_killed(ledger)


def tell_killed(ledger: Path) -> None:
    whole = ledger.read_bytes().rfind(b"\n") + 1  # The last line may be torn.
    os.truncate(ledger, whole)
    with ledger.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"ended": time.time()}) + "\n")


def run(
    folder: Path, *, writers: int, readers: int, seconds: float, kill_every: float = 0.0
) -> Report:
    """Run writers, readers and a process that only cleans up.

    Now and then a writer is killed, and another one starts in its place.
    """
    root, ledgers = folder / "t", folder / "ledgers"
    ledgers.mkdir()
    properties = {"delta.checkpointInterval": "10", "delta.logRetentionDuration": "interval 1 days"}
    table = txlog.Table.create(root, rows(0, 1, "").schema, properties=properties)
    table.append(rows(0, 17, "first"))
    start(root, ledgers, "w0", 0).join()  # The server of processes has started by then.
    chance, report, watched = random.Random(1), Report(), Watched(root, ledgers / "watch0")
    watched.look()
    names = [*(f"w{n}" for n in range(1, writers + 1)), *(f"reader{n}" for n in range(readers))]
    report.places = [[name] for name in [*names, "cleaner0"]]
    running = [start(root, ledgers, *name, seconds) for name in report.places]
    made = writers
    until, next_kill = time.monotonic() + seconds, time.monotonic() + kill_every
    try:
        while any(one.is_alive() for one in running):
            watched.look()
            now = time.monotonic()
            if kill_every and next_kill < now < until:
                next_kill = now + chance.uniform(0.3, 1.7) * kill_every
                place = chance.randrange(writers)
                report.kills += running[place].is_alive()
                end(running[place], ledgers / report.places[place][-1])
                made += 1
                report.places[place].append(f"w{made}")
                running[place] = start(root, ledgers, f"w{made}", until - now)
            time.sleep(0.1)
    finally:
        for one, place_names in zip(running, report.places, strict=True):
            end(one, ledgers / place_names[-1])
    report.faults = [path.read_text(encoding="utf-8") for path in ledgers.glob("*.err")]
    watched.look()
    report.commits = watched.commits
    for path in ledgers.glob("*[0-9]"):
        for entry in entries(path):
            if "verb" in entry:
                report.planned[entry["note"]] = entry
            elif "done" in entry:
                report.done[entry["note"]] = entry["done"]
                report.took[entry["note"]] = entry["took"]
                report.retried[entry["note"]] = entry["retried"]
                report.warned += entry["warned"]
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
        elif version is not None:
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
                plan |= {"to": report.done.get(plan["note"], {}).get("to")}
                assert Counter(after(plan, info, seen)) == Counter(seen[-1]), plan
                plan = None
            held.append(held[-1] if plan is None else after(plan, info, held))
    return held


def rows_of(data: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in data.to_pylist()]  # type: ignore[misc]


def after(what: dict[str, Any], info: dict[str, Any], held: list[list[Row]]) -> list[Row]:
    """Do a verb by the model."""
    now, name = held[-1], _name(what["note"])
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
            to = info.get("operationParameters", {}).get("version", what.get("to"))
            return now if to is None else held[int(to)]
    return now


def test_what_runs_or_was_read_is_needed_and_what_was_killed_is_not() -> None:
    """By ledgers: of verbs that ended and ran at 10 to 12, 20 to 21, and since 30."""
    ended = [{"at": 10.0}, {"ended": 12.0}, {"at": 20.0}, {"ended": 21.0}]
    runs = [*ended, {"at": 30.0}]
    assert unneeded_before([], 40.0) == 40.0 - TRAVEL_S
    assert unneeded_before([ended], 40.0) == 40.0 - TRAVEL_S
    assert unneeded_before([ended, runs], 40.0) == 30.0 - TRAVEL_S
    assert unneeded_before([[*runs, {"ended": 31.0}]], 40.0) == 40.0 - TRAVEL_S  # Killed.
    assert unneeded_before([ended], 20.5 + TRAVEL_S) == 20.0  # It may have removed a file since.
    assert unneeded_before([ended, [{"at": 21.0}]], 40.0) == min(20.0, 21.0 - TRAVEL_S)


@pytest.mark.parametrize("fate", ["runs", "killed"])
def test_a_vacuum_deletes_once_nothing_needs_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    monkeypatch.setattr(worker, "TRAVEL_S", 0)
    (tmp_path / "w1").write_text(json.dumps({"note": "w1:1", "at": time.time()}) + '\n{"to')
    table = txlog.write(tmp_path / "t", rows(0, 9, "first"))
    table.overwrite(rows(0, 9, "second"))
    if fate == "killed":
        tell_killed(tmp_path / "w1")
    time.sleep(0.02)  # The clock of a file system may be some milliseconds behind.
    what = {"verb": "vacuum", "first": 0, "count": 0, "mod": 1, "rest": 0}
    told = worker.do(table, what, "w2", "w2:1", 1, tmp_path)
    assert told == {"deleted": int(fate == "killed")}
    assert table.refresh().to_arrow() == rows(0, 9, "second")


@pytest.mark.slow
@pytest.mark.spec("GUA-3", "GUA-5", "GUA-8")
def test_processes_may_be_killed(tmp_path: Path) -> None:
    report = run(tmp_path, writers=2, readers=0, seconds=4, kill_every=1)
    check(tmp_path, report)
    require_reasons(report)
    assert report.kills >= 1
    assert min(report.progress()[0]) >= 1, "nothing of a writer landed"


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-3", "GUA-5", "GUA-8", "VAC-1", "VAC-2")
def test_four_processes_are_killed_for_a_minute(tmp_path: Path) -> None:
    report = run(tmp_path, writers=4, readers=1, seconds=60, kill_every=1.5)
    print(told(report))
    check(tmp_path, report)
    require_reasons(report)
    assert report.kills > 15
    require_progress(report, seconds=60)
    require_clean_ups(report)


@pytest.mark.exhaustive
@pytest.mark.spec("GUA-3", "GUA-9", "VAC-1", "VAC-2")
def test_sixteen_processes_load_a_table_for_minutes(tmp_path: Path) -> None:
    """`TXLOG_LOAD_S` seconds, or `FULL_LOAD_S`."""
    seconds = float(os.environ.get("TXLOG_LOAD_S", FULL_LOAD_S))
    report = run(tmp_path, writers=16, readers=2, seconds=seconds)
    print(told(report))
    check(tmp_path, report)
    require_reasons(report)
    require_progress(report, seconds=seconds)
    if seconds >= FULL_LOAD_S:  # A shorter one need not last for two verbs, one after the other.
        require_clean_ups(report)
    # Compared with other writers: on a busy machine a limit in seconds would fail at random.
    writers, _ = report.progress()
    assert 10 * min(writers) >= sum(writers) / 16, "a writer starves"
    assert max(report.retried.values()) <= MOST_RETRIES


def require_reasons(report: Report) -> None:
    """Raise if a verb failed, was refused or warned without a rule that says so.

    Rows that were written always fit again, as the columns never change: so appends, and all others
    that `MAY_LOSE` does not name, are not refused. None reaches its deadline.
    """
    assert report.faults == report.errors() == report.warned == []
    assert not any(done.get("gave_up") for done in report.done.values())
    assert report.refused().keys() <= MAY_LOSE


def require_progress(report: Report, *, seconds: float) -> None:
    """Raise unless each writer landed commits and each reader ended reads."""
    writers, readers = report.progress()
    least = seconds / (PACE_S * len(report.places))
    assert min(writers) >= least, "a writer does not come forward"
    assert min(readers) >= least, "a reader does not come forward"


def require_clean_ups(report: Report) -> None:
    """Raise unless clean-ups deleted files beside writers and readers."""
    assert report.deleted("vacuum") > 0, "no vacuum had anything to delete"
    assert report.deleted("expire") > 0, "no clean-up of the log had anything to delete"


def told(report: Report) -> str:
    verbs = Counter(
        f"{report.planned[note]['verb']}{'' if 'conflict' not in done else ' refused'}"
        for note, done in report.done.items()
    )
    again = sorted(report.retried.values())
    slow = sorted(report.took, key=lambda note: report.took[note])[-5:]
    longest = [(note, report.planned[note]["verb"], report.took[note]) for note in slow]
    return (
        f"{len(report.commits)} commits, {len(report.done)} verbs, {report.kills} kills, "
        f"{report.deleted('vacuum')} files and {report.deleted('expire')} of the log deleted, "
        f"commits of each writer and reads of each reader: {report.progress()}, "
        f"the longest in seconds: {longest}; {dict(report.refused())} refused, of 100 verbs 1 "
        f"was tried again {again[-len(again) // 100]} times or more, at most {again[-1]}; "
        f"{dict(verbs)}"
    )
