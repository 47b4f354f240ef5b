"""A process that runs verbs on a table until it is stopped or killed, and records each.

A line of the ledger is written before a verb (what it will do) and after it (what came of it). Rows
belong to no process, so that all of them disturb each other.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import pkgutil
import random
import time
import traceback
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from string import ascii_letters
from typing import Any

import pyarrow as pa
import pyarrow.parquet

import txlog
from txlog import verbs
from txlog.base.effects import Effects
from txlog.base.errors import RetriesExhaustedError
from txlog.expressions.sql import parse_sql

# A process that is forked has all that verbs would import.
for _module in pkgutil.walk_packages(verbs.__path__, "txlog.verbs."):
    importlib.import_module(_module.name)

TRAVEL_S = 1
"""A read, and a restore, goes back to a version that was the latest up to so long before it began.
"""

PAUSE_S = 0.5
"""For so long a process that only cleans up leaves time for restores, which it makes wait."""

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("who", pa.string())])


def rows(first: int, count: int, who: str) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "n": ids, "who": [who] * count}, schema=SCHEMA)


# What these import on first use took a process longer than it lives on a busy machine.
_FIRST = txlog.Table, rows(0, 1, ""), parse_sql("id = 1"), pyarrow.parquet


def options(name: str) -> dict[str, str]:
    """Return the storage options of a process: durability is the default for each second one.

    A killed process loses nothing that it gave to the system, so the model holds for both.
    """
    return {} if int(name.lstrip(ascii_letters)) % 2 else {"txlog.durability": "relaxed"}


def plan(chance: random.Random, name: str, number: int) -> dict[str, Any]:
    """Return what to do next, as values from which the model can do it too."""
    if name.startswith("reader"):
        return {"verb": "read"}
    if name.startswith("cleaner"):
        return {"verb": "vacuum" if number % 2 else "expire"}
    kinds = {
        "append": 6, "delete": 3, "update": 3, "upsert": 2, "replace": 2, "transaction": 2,
        "compact": 1, "z_order": 1, "checkpoint": 1, "vacuum": 1, "restore": 0.3, "property": 1,
        "expire": 1, "pin": 0.3,
    }  # fmt: skip
    kind = chance.choices(list(kinds), list(kinds.values()))[0]
    first = (int(name[1:]) + 1) * 1_000_000 + number * 10
    return {
        "verb": kind, "first": first, "count": chance.randrange(1, 5), "mod": 17,
        "rest": chance.randrange(17), "back": chance.uniform(0.5, 1),
    }  # fmt: skip


def entries(ledger: Path) -> list[dict[str, Any]]:
    """Return the lines of a ledger; one that is being written, or never will be, is left out."""
    text = ledger.read_bytes()
    return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]


def unneeded_before(ledgers: Iterable[list[dict[str, Any]]], now: float) -> float:
    """Return the latest time before which files and versions that ended are in nobody's way.

    Pure. A verb that runs needs the files that it writes, and the versions since `TRAVEL_S` before
    it. A file counts as removed from the time when a verb decided so, before that verb's commit:
    so a verb whose commit may be younger than those versions must be younger as a whole.
    """
    running, spans = [], []
    for ledger in ledgers:
        began = None
        for entry in ledger:
            if "at" in entry:
                began = entry["at"]
            elif began is not None:
                spans.append((began, entry["ended"]))
                began = None
        running += [] if began is None else [began]
    moment = min([now, *running]) - TRAVEL_S
    return min([moment, *(began for began, ended in spans if ended > moment)])


@dataclass(frozen=True)
class Stopped(Effects):
    """A clock that stands: a retention that is counted back from it does not move meanwhile."""

    at_ms: int

    def now_ms(self) -> int:
        return self.at_ms


def cleaner(table: txlog.Table, ledgers: Path) -> tuple[txlog.Table, float]:
    """Return the table for a clean-up, and the shortest retention in hours that harms nobody."""
    now = time.time()
    since = unneeded_before([entries(path) for path in ledgers.glob("*[0-9]")], now)
    context = replace(table._context, effects=Stopped(int(now * 1000)))
    return txlog.Table._of(context, table.refresh().snapshot), (now - since) / 3600


def deleted(decisions: pa.Table) -> dict[str, int]:
    return {"deleted": decisions["decision"].to_pylist().count("delete")}


class Retries(logging.Handler):
    """Counts how often operations of this process were tried again."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += getattr(record, "txlog_event", None) == "retried"


def do(
    table: txlog.Table, what: dict[str, Any], name: str, note: str, number: int, ledgers: Path
) -> dict[str, Any]:
    """Do a verb, and return what it tells; its commit carries the note."""
    match what["verb"]:
        case "checkpoint":
            table.refresh().maintenance.checkpoint()
            return {}
        case "vacuum":
            table, hours = cleaner(table, ledgers)
            return deleted(table.vacuum(hours, False, False))
        case "expire":
            table, hours = cleaner(table, ledgers)
            return deleted(table.maintenance.expire(hours, False))
        case "restore":
            what = {**what, "to": lately(table.uri, what["back"], name).version}
    version = changed(table, what, name, note, number).version
    return {"version": version, "to": what.get("to")}


def changed(table: txlog.Table, what: dict[str, Any], name: str, note: str, number: int) -> Any:
    """Change the table, and return the outcome."""
    noted: dict[str, Any] = {"txn": (name, number), "user_metadata": note}
    some = f"id % {what['mod']} = {what['rest']}"
    data = rows(what["first"], what["count"], name)
    match what["verb"]:
        case "append":
            return table.append(data, **noted)
        case "delete":
            return table.delete(some, **noted)
        case "update":
            return table.update({"n": "n + 1"}, some, **noted)
        case "upsert":
            held = rows(what["rest"], 2, name)
            return table.upsert(pa.concat_tables([data, held]), on="id", **noted)
        case "replace":
            return table.overwrite(rows(what["rest"], 1, name), f"id = {what['rest']}", **noted)
        case "transaction":
            with table.transaction(**noted) as tx:
                tx.delete(some)
                tx.append(data)
            return tx.outcome
        case "compact":
            return table.optimize.compact(**noted)
        case "z_order":
            return table.optimize.z_order(["id", "n"], **noted)
        case "property":
            value = str(500 + what["rest"])
            return table.alter.set_properties({"txlog.pageRows": value}, **noted)
        case "restore":
            return table.restore(what["to"], **noted)
        case "pin":
            table.refresh()
            pin = f"pin{what['rest']}"
            if pin in table.pins.list():
                return table.pins.delete(pin, **noted)
            return table.pins.create(pin, **noted)
    raise AssertionError(what)


def lately(root: str, back: float, name: str) -> txlog.Table:
    """Open the version that was the latest a part of `TRAVEL_S` ago."""
    moment_ms = int(1000 * (time.time() - back * TRAVEL_S))
    return txlog.Table(root, None, moment_ms, options(name), out_of_range="nearest")


def read(root: str, chance: random.Random, name: str) -> dict[str, Any]:
    """Open the latest version, or travel to one of the last moments; return what is seen."""
    travels = chance.random() < 0.5
    latest = partial(txlog.Table, root, None, None, options(name))
    table = lately(root, chance.random(), name) if travels else latest()
    held = table.to_arrow()
    found = [sum(held["id"].to_pylist()), sum(held["n"].to_pylist())]
    return {"version": table.version, "count": held.num_rows, "sums": found}


def work(root: str, ledger: str, name: str, seconds: float) -> None:
    """Do verbs for so long; a foreign exception goes to a file beside the ledger."""
    try:
        do_all(root, ledger, name, seconds)
    except BaseException:
        Path(f"{ledger}.err").write_text(traceback.format_exc(), encoding="utf-8")
        raise


def do_all(root: str, ledger: str, name: str, seconds: float) -> None:
    warned: list[str] = []
    warnings.simplefilter("always", txlog.TxlogWarning)
    warnings.showwarning = lambda message, *_: warned.append(str(message))
    chance = random.Random(name)
    until = time.monotonic() + seconds
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    retries = Retries()
    logger = logging.getLogger("txlog")
    logger.addHandler(retries)
    logger.setLevel(logging.INFO)
    table = txlog.Table(root, None, None, options(name))
    number = 0
    while time.monotonic() < until:
        if name.startswith("cleaner"):
            time.sleep(PAUSE_S)
        number += 1
        note = f"{name}:{number}"
        what = plan(chance, name, number)
        os.write(file, json.dumps({"note": note, "at": time.time(), **what}).encode() + b"\n")
        began, before = time.monotonic(), retries.count
        warned.clear()
        result: dict[str, Any] = {}
        try:
            if what["verb"] == "read":
                result = read(root, chance, name)
            else:
                result = do(table, what, name, note, number, Path(ledger).parent)
        except txlog.CommitConflictError as error:
            result = {"conflict": error.rule, "gave_up": isinstance(error, RetriesExhaustedError)}
        except txlog.TxlogError as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        took = time.monotonic() - began
        retried = retries.count - before
        told = {"note": note, "ended": time.time(), "took": round(took, 3), "retried": retried}
        os.write(file, json.dumps({**told, "warned": warned, "done": result}).encode() + b"\n")
