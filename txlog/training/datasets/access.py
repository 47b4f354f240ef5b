"""Who may use a data set at a service: what is refused, and what results of steps inherit. Pure.

Rules: spec/datasets.md, DST-67 to DST-69.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from txlog.base.errors import TxlogError
from txlog.training.datasets.values import Access


class Unchanged(Enum):
    """The default of a list of users, because None means all users."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED
Users = tuple[str, ...] | None


@dataclass(eq=False, kw_only=True)
class AccessError(TxlogError):
    """A request has no valid token, or the token lacks a right."""

    code: ClassVar[str] = "access-denied"
    summary: ClassVar[str] = "access denied"

    # The token is valid, but lacks the right, or does not allow the data set.
    is_known: bool = False


def refused(user: str, what: str, name: int | str, owner: str | None) -> AccessError:
    """Return the error for a user who may not do something with a data set.

    Parameters
    ----------
    what
        Such as `read`.
    name
        The data set as the user named it: who may not read it does not learn its name.
    """
    return AccessError(
        is_known=True,
        reason=f"{user!r} may not {what} the data set {name!r}"
        + (f", which belongs to {owner!r}" if owner else ""),
        remedy=f"Ask {owner or 'somebody with the right admin'} to share it with {user!r}",
    )


def inherited(owner: str | None, given: Access) -> Access:
    """Return who may use what a step makes: its owner, and who may read the input.

    If everybody may read and change the input, the same holds for the result. Otherwise only the
    owner changes the result.
    """
    if given.readers is None:
        return Access(owner, None, None if given.writers is None else ())
    named = (given.owner, *given.readers, *(given.writers or ()))
    readers = tuple(dict.fromkeys(one for one in named if one is not None and one != owner))
    return Access(owner, readers, ())
