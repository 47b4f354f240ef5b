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
from pathlib import Path
from typing import Any

import pyarrow as pa

import txlog
from txlog import verbs
from txlog.errors import RetriesExhaustedError

# A process that is forked has all that verbs would import.
for _module in pkgutil.walk_packages(verbs.__path__, "txlog.verbs."):
    importlib.import_module(_module.name)

KEPT_S = 120
"""For so long before the oldest verb that runs, a vacuum keeps files that no version has.

Nothing else holds the files of a verb before its commit, however long that takes on a busy machine.
"""

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("who", pa.string())])


def rows(first: int, count: int, who: str) -> pa.Table:
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "n": ids, "who": [who] * count}, schema=SCHEMA)


def plan(chance: random.Random, name: str, number: int) -> dict[str, Any]:
    """Return what to do next, as values from which the model can do it too."""
    kinds = {
        "append": 6, "delete": 3, "update": 3, "upsert": 2, "replace": 2, "transaction": 2,
        "compact": 1, "z_order": 1, "checkpoint": 1, "vacuum": 1, "restore": 0.3, "property": 1,
        "expire": 0.5, "pin": 0.3,
    }  # fmt: skip
    kind = chance.choices(list(kinds), list(kinds.values()))[0]
    first = (int(name[1:]) + 1) * 1_000_000 + number * 10
    return {
        "verb": kind, "first": first, "count": chance.randrange(1, 5), "mod": 17,
        "rest": chance.randrange(17),
    }  # fmt: skip


def kept_hours(ledgers: Path) -> float:
    """Return how old files must be to be deleted, by what the ledgers say that runs."""
    now = oldest = time.time()
    for ledger in ledgers.glob("*[0-9]"):
        last = ledger.read_bytes().splitlines()[-1:]
        oldest = min([oldest, *(entry["at"] for entry in map(json.loads, last) if "at" in entry)])
    return (KEPT_S + now - oldest) / 3600


class Retries(logging.Handler):
    """Counts how often operations of this process were tried again."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += getattr(record, "txlog_event", None) == "retried"


def do(
    table: txlog.Table, what: dict[str, Any], name: str, note: str, number: int, ledgers: Path
) -> Any:
    """Do a verb; its commit carries the note."""
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
            table.refresh()
            return table.restore(max(0, table.version - 2), **noted)
        case "pin":
            table.refresh()
            pin = f"pin{what['rest']}"
            if pin in table.pins.list():
                return table.pins.delete(pin, **noted)
            return table.pins.create(pin, **noted)
        case "checkpoint":
            return table.refresh().maintenance.checkpoint()
        case "vacuum":
            return table.vacuum(kept_hours(ledgers), False, False)
        case "expire":
            return table.maintenance.expire(0.05, False)
    raise AssertionError(what)


def read(root: str, chance: random.Random) -> dict[str, Any]:
    """Travel to a version of the last moments, and return what is seen."""
    table = txlog.Table(root)
    if chance.random() < 0.5 and table.version > 3:
        table = txlog.Table(root, version=table.version - chance.randrange(3))
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
    warnings.simplefilter("ignore", txlog.TxlogWarning)
    chance = random.Random(name)
    until = time.monotonic() + seconds
    file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    retries = Retries()
    logger = logging.getLogger("txlog")
    logger.addHandler(retries)
    logger.setLevel(logging.INFO)
    table = txlog.Table(root)
    number = 0
    while time.monotonic() < until:
        number += 1
        note = f"{name}:{number}"
        reads = name.startswith("reader")
        what = {"verb": "read"} if reads else plan(chance, name, number)
        os.write(file, json.dumps({"note": note, "at": time.time(), **what}).encode() + b"\n")
        began, before = time.monotonic(), retries.count
        result: dict[str, Any] = {}
        try:
            if reads:
                result = read(root, chance)
            else:
                done = do(table, what, name, note, number, Path(ledger).parent)
                result = {"version": getattr(done, "version", None)}
        except txlog.CommitConflictError as error:
            result = {"conflict": error.rule, "gave_up": isinstance(error, RetriesExhaustedError)}
        except txlog.TxlogError as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        took = time.monotonic() - began
        retried = retries.count - before
        line = json.dumps(
            {"note": note, "took": round(took, 3), "retried": retried, "done": result}
        )
        os.write(file, line.encode() + b"\n")
