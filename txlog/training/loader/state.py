"""States of a loader, and the identity of an order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import orjson

from txlog import Expression
from txlog.base.errors import InvalidInputError
from txlog.extend import to_sql
from txlog.training.loader.order import FORMAT

State = dict[str, Any]

_FIELDS = {"format": int, "epoch": int, "position": int, "seed": int, "fingerprint": str}
_VERSIONS = 1000  # How many later versions are tried to find the version of a state.


@dataclass(frozen=True)
class Identity:
    """The values that determine an order, without seed and epoch.

    Parameters
    ----------
    shuffled
        `lanes`, `window_rows` and `block_rows`; None without shuffling.
    chosen
        What else determines the rows, as texts: the digests of a function's rows and of weights.
    """

    table_id: str
    version: int
    where: Expression | None
    shuffled: tuple[int, int, int] | None
    chosen: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """The fingerprint for states. Rule: LDR-8."""
        predicate = None if self.where is None else to_sql(self.where)
        facts = [self.table_id, self.version, predicate, *(self.shuffled or (1, 0, 0))]
        facts += self.chosen
        return sha256(orjson.dumps(facts)).hexdigest()[:16]

    def difference(self, fingerprint: str) -> str:
        """Return the known differences from the order of another fingerprint."""
        for version in (self.version, *range(self.version + _VERSIONS)):
            at = replace(self, version=version)
            for one, without in (
                (at, ()),
                (replace(at, where=None), ("a predicate",)),
                (replace(at, shuffled=None), ("shuffling",)),
                (replace(at, where=None, shuffled=None), ("a predicate", "shuffling")),
            ):
                if one.fingerprint == fingerprint:
                    return self._said(version, without)
        return (
            "the table, its version, the predicate, the function of rows, the weights, the "
            "windows, or the shuffle's numbers of lanes and rows differ"
        )

    def _said(self, version: int, without: Sequence[str]) -> str:
        said = []
        if version != self.version:
            said.append(f"of version {version}, this loader reads version {self.version}")
        if without:
            said.append(f"of a loader without {' and '.join(without)}")
        return f"it is {', and it is '.join(said)}"


def require_state(state: Mapping[str, Any]) -> None:
    """Raise unless a value is a state of this format.

    Raises
    ------
    InvalidInputError
        It is not a state.
    """
    if not isinstance(state, Mapping) or set(state) != set(_FIELDS):
        raise refused(f"a state has the fields {', '.join(_FIELDS)}", "Pass what state_dict() gave")
    for name, kind in _FIELDS.items():
        value = state[name]
        is_below = isinstance(value, int) and value < 0
        if isinstance(value, bool) or not isinstance(value, kind) or is_below:
            raise refused(f"its {name} is {value!r}", "Pass what state_dict() gave")
    if state["format"] != FORMAT:
        raise refused(
            f"its format is {state['format']}, this version of txlog knows {FORMAT}",
            "Go on with the version of txlog that made it",
        )


def refused(reason: str, remedy: str = "") -> InvalidInputError:
    """Return the error for a state from which a loader cannot continue."""
    return InvalidInputError(
        argument="state",
        reason=reason,
        remedy=remedy or "Open the table, version and order that the state was made with",
    )
