"""Who changed what: the events of the ledger and the commits of all data sets, as one table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from txlog.base.arrow import table_of_rows
from txlog.base.errors import warn_caller
from txlog.training.datasets.events import Event, canonical, text_or_none
from txlog.training.datasets.home import Home

AUDIT = pa.schema(
    [
        pa.field("time", pa.timestamp("us", "UTC"), False),
        ("user", pa.string()),
        ("client", pa.string()),
        pa.field("action", pa.string(), False),
        ("dataset_id", pa.int64()),
        pa.field("dataset", pa.string(), False),
        ("commit", pa.int64()),
        ("training_set", pa.string()),
        ("details", pa.string()),
    ]
)
_ASKED_FOR = frozenset(
    {"created", "deleted", "undeleted", "purged", "hidden", "shown", "tagged", "asked", "shared"}
    | {"branched", "published", "discarded", "step_added", "step_removed"}
)
_COLUMNS = frozenset({"id", "user", "client", "commit", "hash", "picked", "uuid"})


def audit_of(home: Home) -> pa.Table:
    """Return a row for each change that somebody asked for, in the order of the times."""
    rows = [*_events(home), *_commits(home)]
    rows.sort(key=lambda row: row["time"])
    return table_of_rows(rows, AUDIT)


def _events(home: Home) -> Iterator[dict[str, Any]]:
    events = home.ledger.events()
    state = home.ledger.state()
    names = {one.dataset_id: one.name for one in state.datasets.values()}
    for event in events:
        if event.kind not in _ASKED_FOR:
            continue
        body, name = event.body, names.get(event.body.get("id", 0))
        if "step" in body:
            step = state.steps[body["step"]]
            facts = {"id": step.input_id, "into": step.into, "name": step.name}
            body, name = {**body, **facts}, step.input
        details = {name: value for name, value in body.items() if name not in _COLUMNS}
        yield {
            "time": event.at_ms * 1000,
            "user": _text(event, "user"),
            "client": _text(event, "client"),
            "action": event.kind,
            "dataset_id": body["id"],
            "dataset": name,
            "commit": body.get("commit"),
            "training_set": body.get("hash"),
            "details": canonical(details) if details else None,
        }


def _text(event: Event, name: str) -> str | None:
    try:
        return text_or_none(event.body, name)
    except ValueError as error:  # One event must not hide all others.
        warn_caller(f"event {event.n} of the ledger is damaged: {error}")
        return None


def _commits(home: Home) -> Iterator[dict[str, Any]]:
    for state in home.ledger.state().datasets.values():
        known = None if state.purged else home.if_whole(state, home.commits)
        for one in known or ():
            yield {
                "time": one.created_ms * 1000,
                "user": one.user,
                "client": one.client,
                "action": "committed",
                "dataset_id": state.dataset_id,
                "dataset": state.name,
                "commit": one.commit_id,
                "training_set": None,
                "details": canonical({"message": one.message, "rows": one.rows}),
            }
