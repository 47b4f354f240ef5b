"""Reconciliation as the protocol describes it: one action after the other, into dictionaries."""

from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, str | None]
"""A logical file: its path, decoded, and its deletion vector."""
Commit = list[dict[str, Any]]
"""The actions of one version, as JSON objects."""


@dataclass
class PlainState:
    """What a version is: of each name, the newest action."""

    files: dict[Key, tuple[bool, int]] = field(default_factory=dict)  # Whether live; version.
    txns: dict[str, int] = field(default_factory=dict)
    domains: dict[str, tuple[str, bool]] = field(default_factory=dict)
    features: list[str] = field(default_factory=list)
    schema: str = ""


def plain_state(log: list[Commit]) -> PlainState:
    """Return the state that all commits of a log make, in the order of their versions."""
    state = PlainState()
    for version, commit in enumerate(log):
        for row in commit:
            ((name, body),) = row.items()
            match name:
                case "add" | "remove":
                    vector = body.get("deletionVector")
                    key = (body["path"].replace("%20", " "), vector and vector["pathOrInlineDv"])
                    state.files[key] = (name == "add", version)
                case "txn":
                    state.txns[body["appId"]] = body["version"]
                case "domainMetadata":
                    state.domains[body["domain"]] = (body["configuration"], body["removed"])
                case "protocol":
                    state.features = body["writerFeatures"]
                case "metaData":
                    state.schema = body["schemaString"]
    return state
