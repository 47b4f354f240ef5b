"""The rights of callers, who send bearer tokens. A file contains the digests of the tokens."""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Literal, Protocol

import orjson

from txlog.base.errors import InvalidInputError, NotFoundError, TxlogError, os_errors, require_whole
from txlog.base.texts import number_or_name
from txlog.training.datasets.access import AccessError, denied
from txlog.training.datasets.limits import require_user

if TYPE_CHECKING:
    from txlog.training.datasets.dataset import Dataset
    from txlog.training.datasets.folder import Datasets
    from txlog.training.datasets.steps import Step
    from txlog.training.datasets.values import Access, Summary

_LOG = logging.getLogger("txlog.serve")
Right = Literal["read", "write", "admin"]
RIGHTS: tuple[Right, ...] = ("read", "write", "admin")


@dataclass(frozen=True)
class Principal:
    """The sender of a request."""

    name: str
    right: Right
    datasets: frozenset[str] | None = None  # The names of allowed data sets. None: all.
    has_token: bool = True  # Otherwise the changes are those of the server's own user.
    client: str | None = None  # The program that sent the request.

    def acting(self, datasets: Datasets) -> Datasets:
        """Return data sets whose changes are recorded with the sender."""
        user = self.name if self.has_token else None
        return datasets.acting_as(user, self.client, limited=self.is_limited)

    def require(self, right: Right) -> None:
        """Raise unless the sender has the right or a larger one.

        Raises
        ------
        AccessError
            The sender does not.
        """
        if RIGHTS.index(self.right) < RIGHTS.index(right):
            raise AccessError(
                is_known=True,
                reason=f"{self.name!r} has the right {self.right!r}; this needs {right!r}",
                remedy="Use a token with that right",
            )

    def may_see(self, name: str, access: Access | None = None) -> bool:
        """Return whether a data set of this name may be read."""
        if self.datasets is not None and name not in self.datasets:
            return False
        return access is None or not self.is_limited or access.may_read(self.name)

    @property
    def is_limited(self) -> bool:
        """Whether owners of data sets decide what the sender may do."""
        return self.has_token and self.right != "admin"

    # Steps ----------------------------------------------------------------------------------

    def steps(self, datasets: Datasets) -> Iterator[Step]:
        """Yield the steps of data sets that may be read, and those that the sender added.

        The text of a program's error may have rows of the input, and paths of the runner. It is
        only for those who may read the input, and either added the step or may change the result.
        """
        known = datasets.access()
        for one in datasets.steps():
            if not (self.may_see(one.input) and self.may_see(one.into)):
                continue
            if not self.is_limited:
                yield one
                continue
            is_own = one.user == self.name
            reads = one.input_id is not None and known[one.input_id][1].may_read(self.name)
            result = None if one.into_id is None else known[one.into_id][1]
            if not is_own and not (reads and (result is None or result.may_read(self.name))):
                continue
            changes = is_own or (result is not None and result.may_write(self.name))
            if one.error is not None and one.state == "FAILED" and not (reads and changes):
                yield replace(one, error=replace(one.error, text=_UNTOLD))
            else:
                yield one

    def require_remove(self, datasets: Datasets, step: Step) -> None:
        """Raise unless the sender added a step, or may change its result.

        Raises
        ------
        AccessError
            The sender may not.
        """
        self.require("write")
        if not self.is_limited or step.user == self.name or step.into_id is None:
            return
        access = datasets.access()[step.into_id][1]
        if error := denied(self.name, "change", step.into, access):
            raise error

    def for_step(self, datasets: Datasets, wanted: str, right: Right) -> int | str:
        """Return the number of a data set of a new step, or its name if a run has yet to make it.

        Raises
        ------
        AccessError, NotFoundError
            As for `dataset`; the sender may not create a data set of the name.
        """
        self.require("write")
        if not isinstance(number_or_name(wanted), int):
            try:
                datasets.dataset(wanted)
            except NotFoundError:
                self.require_create(wanted)
                return wanted
        return self.dataset(datasets, wanted, right).dataset_id

    # Changes --------------------------------------------------------------------------------

    def changes(self, datasets: Datasets) -> list[dict[str, Any]]:
        """Return the rows of the audit of data sets that may be read.

        A row of a step is for those who may read its input and its result.
        """
        known = datasets.access()
        hidden = {name for name, access in known.values() if not self.may_see(name, access)}
        found = []
        for row in datasets.audit().to_pylist():
            number = row["dataset_id"]
            if number is not None and not self.may_see(*known[number]):
                continue
            if row["action"] in ("step_added", "step_removed") and not all(
                self.may_see(name) and name not in hidden
                for name in (row["dataset"], orjson.loads(row["details"])["into"])
            ):
                continue
            if number is None and self.is_limited and row["user"] != self.name:
                continue
            found.append(row)
        return found

    # Data sets ------------------------------------------------------------------------------

    def dataset(
        self, datasets: Datasets, wanted: str, right: Right, *, purged: bool = False
    ) -> Dataset:
        """Return a data set by its number or name; `purged` as for `Datasets.dataset`.

        A sender with a token for some data sets learns nothing about the others. No sender without
        the right `admin` learns the names of data sets of others.

        Raises
        ------
        NotFoundError
            There is no such data set, or the sender may not use it.
        AccessError
            The sender lacks the right, or its owner did not share it with the sender.
        """
        self.require(right)
        try:
            found = self.acting(datasets).dataset(number_or_name(wanted), purged=purged)
        except NotFoundError:  # The error names the data sets that exist.
            if self.datasets is None and not self.is_limited:
                raise
        else:
            if self.may_see(found.name):
                user, name = self.name if self.is_limited else None, number_or_name(wanted)
                error = denied(user, "read", name, found.access)
                if error is None and right != "read":
                    error = denied(user, "change", name, found.access)
                if error is not None:
                    raise error
                return found
        raise NotFoundError(
            reason=f"there is no data set {wanted[:100]!r}, or the token does not allow it"
        )

    def page(
        self, datasets: Datasets, limit: int, after: int | None = None, **options: Any
    ) -> tuple[list[Summary], int | None]:
        """Return at most `limit` data sets that the sender may use, and the next page's start.

        Raises
        ------
        AccessError
            The sender may not read.
        InvalidInputError
            `limit` is less than 1.
        """
        self.require("read")
        require_whole("limit", limit, 1)
        found: list[Summary] = []
        while len(found) <= limit:  # Data sets of others do not count.
            page = datasets.list(limit + 1, after, **options)
            found += [one for one in page if self.may_see(one.name, one.access)]
            if not page:  # A short page is no end: a purge may have removed some of it meanwhile.
                break
            after = page[-1].dataset_id
        return found[:limit], found[limit - 1].dataset_id if len(found) > limit else None

    def require_create(self, name: str) -> None:
        """Raise unless the sender may create a data set of this name.

        Raises
        ------
        AccessError
            The sender may not.
        """
        self.require("write")
        if not self.may_see(name):
            raise AccessError(
                is_known=True,
                reason=f"{self.name!r} may not use the data set {name!r}",
                remedy="Use a token that lists it",
            )


_UNTOLD = "the text of the error is for those who may read the input, and change the result"


def require_guarded(
    host: str | None, authenticator: Authenticator | None, datasets: Datasets
) -> None:
    """Raise if a server would give its callers too many rights.

    Raises
    ------
    InvalidInputError
        There are no tokens and the host is not a loopback address; or there are tokens and no list
        of sources, so that each token could read everything that the server can read.
    """
    if authenticator is None and host is not None and not is_loopback(host):
        raise InvalidInputError(
            argument="host",
            reason=f"without tokens only this machine may reach the service, and {host!r} is not a "
            "loopback address",
            remedy="Pass a file of tokens, or bind 127.0.0.1",
        )
    if authenticator is not None and datasets.sources.allowed is None:
        raise InvalidInputError(
            argument="datasets",
            reason="with tokens the folder needs a list of the places of sources",
            remedy="Pass one: Datasets(root, sources={...}), or --source NAME=PLACE",
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Authenticator(Protocol):
    """Finds the sender of a request by its bearer token."""

    def authenticate(self, token: str | None) -> Principal:
        """Return the sender.

        Raises
        ------
        AccessError
            There is no token, or it is unknown.
        """
        ...


class Everybody:
    """All rights for everybody, for a server that only its own machine can reach."""

    def authenticate(self, token: str | None) -> Principal:
        """Return a principal with all rights."""
        return Principal("anybody", "admin", has_token=False)


class TokenFile:
    """Tokens of a JSON file.

    The file is `{"tokens": [{"name": "julia", "sha256": "<64 hex>", "right": "read", "datasets":
    ["intents"]}]}`. Without `datasets`, the token is for all data sets. `txlog datasets token`
    makes a token and its digest. The file is read again when it changes; while it is invalid, the
    old tokens are used.

    Raises
    ------
    InvalidInputError
        The file does not have this form; the error names the entry.
    NotFoundError
        There is no such file.
    StoreError
        The file cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._read: tuple[tuple[int, int], dict[str, Principal]] | None = None
        self._principals()

    def authenticate(self, token: str | None) -> Principal:
        """Return the owner of the token; errors as for `Authenticator`."""
        given = digest_of(token or "")
        found = None
        # All tokens are compared, so that the time reveals nothing.
        for digest, principal in self._principals().items():
            if hmac.compare_digest(digest, given):
                found = principal
        if token is None or found is None:
            raise AccessError(
                reason="the request has no bearer token" if token is None else "unknown token",
                remedy="Send the header 'Authorization: Bearer <token>'",
            )
        return found

    def _principals(self) -> dict[str, Principal]:
        try:
            with os_errors("read", str(self._path)):
                state = self._path.stat()
                mark = (state.st_mtime_ns, state.st_size)
                if self._read is None or self._read[0] != mark:
                    self._read = (
                        mark,
                        parse_tokens(self._path.read_bytes(), str(self._path), argument="path"),
                    )
        except TxlogError as error:
            if self._read is None:
                raise
            _LOG.error("the file of tokens is invalid, so the old tokens are used: %s", error)
        return self._read[1]


def new_token() -> str:
    """Return a random token of 43 characters."""
    return token_urlsafe(32)


def digest_of(token: str) -> str:
    """Return the digest of a token for the file: the SHA-256 of its UTF-8 bytes, in hex."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def token_entry(
    name: str, token: str, right: str, datasets: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the entry of a token for the file. Pure; errors as for `parse_tokens`."""
    require_user(name, "name")  # JSON cannot store half a character.
    entry = {"name": name, "sha256": digest_of(token), "right": right}
    whole = entry | ({"datasets": [*datasets]} if datasets else {})
    parse_tokens(orjson.dumps({"tokens": [whole]}), "the entry")
    return whole


def parse_tokens(text: bytes, path: str, argument: str | None = None) -> dict[str, Principal]:
    """Return principals by the digests of their tokens. Pure.

    Raises
    ------
    InvalidInputError
        The text does not have the form that `TokenFile` describes.
    """

    def wrong(reason: str) -> InvalidInputError:
        return InvalidInputError(argument=argument, reason=f"{path}: {reason}")

    try:
        entries = orjson.loads(text)["tokens"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise wrong('expected a JSON object {"tokens": [...]}') from error
    if not isinstance(entries, list):
        raise wrong('"tokens" is not a list')
    found: dict[str, Principal] = {}
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or entry.keys() - {"name", "sha256", "right", "datasets"}:
            raise wrong(f"token {number}: expected only name, sha256, right and datasets")
        name, digest, right = (entry.get(key) for key in ("name", "sha256", "right"))
        datasets = entry.get("datasets")
        if not isinstance(name, str) or not name:
            raise wrong(f"token {number}: expected a name")
        try:
            require_user(name)  # Changes are recorded with it.
        except InvalidInputError as error:
            raise wrong(f"token {number}: {error.reason}") from error
        if not isinstance(digest, str) or len(digest) != 64 or set(digest) - set(_HEX):
            raise wrong(f"token {number} ({name}): sha256 is not 64 lower-case hex digits")
        if right not in RIGHTS:
            raise wrong(f"token {number} ({name}): right is not one of {', '.join(RIGHTS)}")
        if datasets is not None and not (
            isinstance(datasets, list) and all(isinstance(one, str) for one in datasets)
        ):
            raise wrong(f"token {number} ({name}): datasets is not a list of names")
        if digest in found:
            raise wrong(f"token {number} ({name}): another entry has the same token")
        if any(name == known.name for known in found.values()):
            raise wrong(f"token {number}: another entry has the name {name}")
        if digest == digest_of(""):
            raise wrong(f"token {number} ({name}): the token is empty")
        found[digest] = Principal(name, right, None if datasets is None else frozenset(datasets))
    if not found:
        raise wrong("there is no token")
    return found


_HEX = "0123456789abcdef"
