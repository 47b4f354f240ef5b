"""Who may use a data set at a service: what is refused, and what results of steps inherit. Pure.

Rules: spec/datasets.md, DST-67 to DST-69.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Literal

from txlog.base.errors import TxlogError
from txlog.training.datasets.values import Access


class Unchanged(Enum):
    """The default of a list of users, because None means all users."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED
Users = tuple[str, ...] | None
Need = Literal["read", "change"]
OF_STEP: tuple[Need, Need] = ("read", "change")
"""What a step needs of its input, and of its result."""


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


def denied(user: str | None, what: Need, name: int | str, access: Access) -> AccessError | None:
    """Return the error if a user may not read or change a data set; None: everybody else may.

    No user is a user to whom no access is limited. The name is as for `refused`.
    """
    may = access.may_read if what == "read" else access.may_write
    return None if user is None or may(user) else refused(user, what, name, access.owner)


def inherited(owner: str | None, given: Access) -> Access:
    """Return the access to what a step makes: the owner has it, and the readers of the input.

    If everybody may read and change the input, the same holds for the result. Otherwise only the
    owner changes the result.
    """
    if given.readers is None:
        return Access(owner, None, None if given.writers is None else ())
    named = (given.owner, *given.readers, *(given.writers or ()))
    readers = tuple(dict.fromkeys(one for one in named if one is not None and one != owner))
    return Access(owner, readers, ())
