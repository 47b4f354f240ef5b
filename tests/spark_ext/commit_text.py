"""Facts about a commit from its text, without code of txlog."""

import json
from pathlib import Path
from typing import Any

from txlog.fragments.ids import ID_APP


def actions(table: Path, version: int) -> list[dict[str, Any]]:
    """Return the actions of a commit."""
    text = (table / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def transactions(table: Path, version: int) -> dict[str, int]:
    """Return the versions of applications that a commit records, but for txlog's own."""
    found = (action["txn"] for action in actions(table, version) if "txn" in action)
    return {txn["appId"]: txn["version"] for txn in found if txn["appId"] != ID_APP}
