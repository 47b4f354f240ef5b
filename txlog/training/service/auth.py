"""The rights of callers, who send bearer tokens. A file contains the digests of the tokens."""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import orjson

from txlog.base.errors import InvalidInputError, NotFoundError, TxlogError, os_errors, require_whole
from txlog.base.texts import number_or_name
from txlog.training.datasets.limits import require_user

if TYPE_CHECKING:
    from txlog.training.datasets.dataset import Dataset
    from txlog.training.datasets.folder import Datasets
    from txlog.training.datasets.values import Access, Summary

_LOG = logging.getLogger("txlog.serve")
Right = Literal["read", "write", "admin"]
RIGHTS: tuple[Right, ...] = ("read", "write", "admin")


@dataclass(eq=False, kw_only=True)
class AccessError(TxlogError):
    """A request has no valid token, or the token lacks a right."""

    code: ClassVar[str] = "access-denied"
    summary: ClassVar[str] = "access denied"

    # The token is valid, but lacks the right, or does not allow the data set.
    is_known: bool = False


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
        return datasets.acting_as(self.name if self.has_token else None, self.client)

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

    def seen(self, datasets: Datasets) -> frozenset[int]:
        """Return the numbers of the data sets that may be read, with deleted and purged ones."""
        return frozenset(number for number, one in datasets.access().items() if self.may_see(*one))

    def sees(self, datasets: Datasets, *names: str) -> bool:
        """Return whether data sets of some names may be read; some need not exist yet."""
        known = datasets.access().values()
        return all(
            self.may_see(wanted) and all(self.may_see(*one) for one in known if one[0] == wanted)
            for wanted in names
        )

    def require_share(self, found: Dataset) -> None:
        """Raise unless the sender may say who uses a data set.

        Raises
        ------
        AccessError
            The sender is neither its owner nor has the right `admin`.
        """
        if self.is_limited and found.access.owner != self.name:
            raise self._refused(found, "say who may use")

    def _refused(self, found: Dataset, what: str) -> AccessError:
        owner = found.access.owner
        return AccessError(
            is_known=True,
            reason=f"{self.name!r} may not {what} the data set {found.name!r}"
            + (f", which belongs to {owner!r}" if owner else ""),
            remedy=f"Ask {owner or 'somebody with the right admin'} to share it with {self.name!r}",
        )

    def dataset(
        self, datasets: Datasets, wanted: str, right: Right, *, purged: bool = False
    ) -> Dataset:
        """Return a data set by its number or name; `purged` as for `Datasets.dataset`.

        A sender with a token for some data sets learns nothing about the others, not even their
        names.

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
        except NotFoundError:
            if self.datasets is None:
                raise
        else:
            if self.may_see(found.name):
                access = found.access
                if self.is_limited and not access.may_read(self.name):
                    raise self._refused(found, "read")
                if self.is_limited and right != "read" and not access.may_write(self.name):
                    raise self._refused(found, "change")
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
            if len(page) <= limit:
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
            argument="sources",
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
                    self._read = mark, parse_tokens(self._path.read_bytes(), str(self._path))
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
    require_user(name)  # JSON cannot store half a character.
    entry = {"name": name, "sha256": digest_of(token), "right": right}
    whole = entry | ({"datasets": [*datasets]} if datasets else {})
    parse_tokens(orjson.dumps({"tokens": [whole]}), "the entry")
    return whole


def parse_tokens(text: bytes, path: str) -> dict[str, Principal]:
    """Return principals by the digests of their tokens. Pure.

    Raises
    ------
    InvalidInputError
        The text does not have the form that `TokenFile` describes.
    """

    def wrong(reason: str) -> InvalidInputError:
        return InvalidInputError(argument="tokens", reason=f"{path}: {reason}")

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
