"""The values of data sets: commits, summaries, training sets, jobs.

Pydantic reads some of them from the JSON of the service, and writes them to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ConfigDict, StrictInt

from txlog.base.errors import InvalidInputError
from txlog.base.frozen import freeze

State = Literal["RUNNING", "READY", "FAILED"]
FORMS = ("parquet", "csv")
FORMAT = "1"  # The format of the ledger and of the tables of data sets.
CLOSED = ConfigDict(extra="forbid")
"""`__pydantic_config__` of classes of which a request has JSON; further fields are refused."""
ANSWERED = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)
"""`__pydantic_config__` of classes of which a response has JSON, always with all fields."""


ONE_REQUEST = "txlog.serve:"
"""The start of applications whose version is the digest of a request, not a number that grows."""


def require_same_request(txn: tuple[str, int] | None, recorded: int | None) -> None:
    """Refuse a request of a service whose `Idempotency-Key` belongs to another request (DST-61).

    Parameters
    ----------
    recorded
        The version that the application of `txn` has recorded, or None. Compare within the change
        itself: two requests may come at once.
    """
    if txn is None or recorded is None or not txn[0].startswith(ONE_REQUEST):
        return
    if txn[1] != recorded:
        raise InvalidInputError(
            argument="Idempotency-Key",
            reason="the key belongs to another request",
            remedy="Send another key with each new request, and the same with each retry",
        )


@dataclass(frozen=True)
class Who:
    """Who does something, and by which program; None: unknown."""

    user: str | None = None
    client: str | None = None
    is_limited: bool = False  # The owners of data sets decide what the user may do (DST-67).

    def to_json(self) -> dict[str, str]:
        """Return the known facts."""
        facts = {"client": self.client, "user": self.user}
        return {name: text for name, text in facts.items() if text is not None}

    def commit_info(self, why: str) -> dict[str, str]:
        """Return the fields of `commitInfo` that name the user, the client and the reason."""
        facts = {"client": self.client, "userMetadata": why, "userName": self.user}
        return {name: text for name, text in facts.items() if text}


NOBODY = Who()
"""The author of what no person asked for."""


@dataclass(frozen=True)
class Access:
    """Who may use a data set at a service with tokens. A folder itself asks nobody."""

    __pydantic_config__ = ANSWERED
    owner: str | None = None  # Who made it, unless it was given to somebody else.
    readers: tuple[str, ...] | None = None  # Names of tokens; None: all.
    writers: tuple[str, ...] | None = None  # They may read, too; None: all who may read.

    def may_read(self, user: str) -> bool:
        """Return whether a user may read it. Pure."""
        return self.readers is None or user in (self.owner, *self.readers, *(self.writers or ()))

    def may_write(self, user: str) -> bool:
        """Return whether a user may change it. Pure."""
        if user == self.owner:
            return True
        return self.may_read(user) if self.writers is None else user in self.writers


@dataclass(frozen=True)
class Input:
    """An input of a commit: a file, a table at a version, or a commit of a data set."""

    __pydantic_config__ = CLOSED
    uri: str
    role: str = "source"
    version: StrictInt | None = None  # The version of a table, or the number of a commit.
    digest: str | None = None  # The SHA-256 of a file's bytes, or the digest of a commit.


@dataclass(frozen=True)
class Code:
    """The program that made a commit, such as a script with its revision."""

    __pydantic_config__ = CLOSED
    name: str
    version: str | None = None


@dataclass(frozen=True)
class Commit:
    """Rows that were added to a data set together. Except for the two flags, it never changes."""

    __pydantic_config__ = ANSWERED
    dataset: str  # The data set's uuid.
    commit_id: int  # 1, 2, 3 … without gaps.
    created_ms: int  # Milliseconds since the epoch, UTC.
    type: str  # Name and version of the type, such as `text-intent/1`.
    rows: int
    digest: str  # SHA-256 of the rows in their order, 64 hex digits.
    message: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    statistics: Mapping[str, int] = field(default_factory=dict)
    inputs: tuple[Input, ...] = ()
    code: Code | None = None
    hidden: bool = False  # Later training sets do not pick the commit.
    purged: bool = False  # The rows were removed permanently.
    user: str | None = None  # Who made it.
    client: str | None = None  # The program by which it was made.
    replaces: int = (
        0  # Training sets with this commit pick none up to this one; 0: it replaces none.
    )
    spares: tuple[int, ...] = ()  # Commits of other branches that it does not replace.
    branch: str | None = None  # The branch on which it is; None after it is published.
    branch_id: int = 0  # The number of that branch.

    def __post_init__(self) -> None:
        freeze(self)

    def __hash__(self) -> int:
        return hash((self.dataset, self.commit_id, self.digest))


@dataclass(frozen=True)
class Summary:
    """The description of a data set, and its commits in order."""

    __pydantic_config__ = ANSWERED
    dataset_id: int  # 1, 2, 3 … in the order in which they were made.
    uuid: str
    name: str
    type: str  # Such as `TEXT_INTENT`.
    created_ms: int  # Milliseconds since the epoch, UTC.
    last_updated_ms: int  # The time of the last commit.
    description: str | None = None
    commits: tuple[Commit, ...] = ()
    names: Mapping[str, int | str] = field(default_factory=dict)  # Of `tag`: a number or a hash.
    deleted: bool = False
    access: Access = field(default_factory=Access)

    def __post_init__(self) -> None:
        freeze(self)

    def __hash__(self) -> int:
        return hash((self.uuid, len(self.commits)))


@dataclass(frozen=True)
class Part:
    """A part of a prepared training set: a table, or a file."""

    name: str  # Such as `examples`.
    uri: str
    bytes: int
    rows: int | None  # None for a file of any kind, which has no rows.
    sha256: str


@dataclass(frozen=True)
class Failure:
    """Why a training set could not be made."""

    __pydantic_config__ = ANSWERED
    code: str  # The code of the error, as `TxlogError.code`.
    text: str


WHERE = "where"
"""The option of a predicate for the examples, which all types have (DST-46)."""


@dataclass(frozen=True)
class Asked:
    """The content and the recipe of a training set, from which its version hash is computed."""

    version_hash: str
    type: str  # The recipe: name and version of the type, such as `text-intent/1`.
    picked: tuple[tuple[int, str], ...]  # Number and digest of each commit, ascending.
    form: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def commit_ids(self) -> tuple[int, ...]:
        """The numbers of the picked commits, ascending."""
        return tuple(number for number, _ in self.picked)


@dataclass(frozen=True)
class Job:
    """A training set to make. It pickles.

    The table is read at `table_version`, so later commits, compactions and purges have no effect.
    Each attempt writes into a separate folder below `folder`.
    """

    dataset_id: int
    dataset: str  # The data set's uuid.
    asked: Asked
    table_uri: str  # The table of the data set's rows, partitioned by `commit_id`.
    table_version: int
    folder: str  # `<root>/sets/<uuid>/<hash>`; attempt n writes into `<folder>/<n>`.
    files_uri: str  # `<root>/files`: objects that are too large for a row.
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def type(self) -> str:
        """The recipe: name and version of the type, such as `text-intent/1`."""
        return self.asked.type


@dataclass(frozen=True)
class Claim:
    """The right to make a training set for a time. Only the last attempt may record `ready`."""

    dataset_id: int
    version_hash: str
    attempt: int  # From 1.
    worker: str
    lease_until_ms: int  # Milliseconds since the epoch, UTC.
