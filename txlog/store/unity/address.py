"""Addresses of Unity Catalog: `uc://host[:port]/catalog[/schema.table]`, and the token."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from txlog.base.errors import InvalidInputError
from txlog.base.texts import without_secrets
from txlog.store.base import OWN_OPTIONS

SCHEMES = {"uc": "https", "uc+http": "http"}
"""The schemes of addresses, with those of the requests."""
TOKEN = f"{OWN_OPTIONS}catalog.token"
"""The storage option with the token, a `Secret`. A user writes `token`."""
VARIABLES = ("UC_ACCESS_TOKEN", "UNITY_ACCESS_TOKEN", "DATABRICKS_TOKEN")
"""The environment variables with the token, as other clients name them; the first one counts."""

_HOST = re.compile(r"(?P<name>[^/:@?#\[\]\s]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?")
_LOOPBACK = re.compile(r"localhost|127(\.\d{1,3}){3}|\[::1\]", re.IGNORECASE)
_STEP = re.compile(r"[^\s./\\?#%:@\x00-\x1f\x7f]+")


class Secret:
    """A text that no `repr`, message or pickle shows. A pickled one is empty afterwards."""

    __slots__ = ("_text",)

    def __init__(self, text: str = "") -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def __repr__(self) -> str:
        return "…"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)  # Python salts it in each process, so it tells nothing.

    def __reduce__(self) -> tuple[type[Secret], tuple[()]]:
        return Secret, ()


class Address(NamedTuple):
    """A catalog, or a table of it."""

    scheme: str  # `uc` or `uc+http`.
    host: str  # With the port, if there is one.
    catalog: str
    table: str | None = None  # `schema.table`

    def __str__(self) -> str:
        table = "" if self.table is None else f"/{self.table}"
        return f"{self.scheme}://{self.host}/{self.catalog}{table}"

    @property
    def server(self) -> str:
        """The URL of the server."""
        return f"{SCHEMES[self.scheme]}://{self.host}"

    @property
    def is_private(self) -> bool:
        """Whether the requests are encrypted, or stay on this host."""
        found = _HOST.fullmatch(self.host)
        is_near = found is not None and _LOOPBACK.fullmatch(found["name"]) is not None
        return self.scheme == "uc" or is_near


@dataclass(frozen=True)
class Access:
    """An address with the token for it."""

    address: Address
    given: Secret = field(default_factory=Secret)

    @property
    def token(self) -> str:
        """The given token, else that of the environment; empty: none.

        That of the environment is not sent unencrypted to another host.
        """
        if self.given.reveal():
            return self.given.reveal()
        found = (os.environ.get(name) for name in VARIABLES)
        return next(filter(None, found), "") if self.address.is_private else ""


def is_address(text: object) -> bool:
    """Return whether a text is an address of Unity Catalog."""
    return isinstance(text, str) and text.partition("://")[0].lower() in SCHEMES and "://" in text


def parse_address(text: str) -> Address:
    """Parse `uc://host[:port]/catalog`, also with a table: `/schema.table` or `/schema/table`.

    Raises
    ------
    InvalidInputError
        It is another text, or contains a password or a query.
    """
    scheme, _, rest = text.partition("://")
    host, _, path = rest.partition("/")
    found = _HOST.fullmatch(host)
    steps = [step for part in path.strip("/").split("/") for step in part.split(".")]
    is_fit = found is not None and int(found["port"] or 1) in range(1, 65536)
    if not is_fit or len(steps) not in (1, 3) or not all(map(_STEP.fullmatch, steps)):
        raise InvalidInputError(
            argument="uri",
            reason=f"{without_secrets(text)!r} is not an address of Unity Catalog",
            remedy="Write uc://host/catalog, or uc://host/catalog/schema.table for a table. The "
            f"token is the storage option 'token' or the variable {VARIABLES[0]}",
        )
    table = ".".join(steps[1:]) or None
    return Address(scheme.lower(), host, steps[0], table)


def access_of(text: str, options: Mapping[str, Any]) -> tuple[Access, dict[str, Any]]:
    """Return an address with its token, and the other options: those of the tables' storage.

    Raises
    ------
    InvalidInputError
        The text is not an address, or the token is not text.
    """
    rest = dict(options)
    token = rest.pop("token", None)
    token = rest.pop(TOKEN, Secret()) if token is None else token
    rest.pop(TOKEN, None)
    secret = token if isinstance(token, Secret) else Secret(token)
    if not isinstance(secret.reveal(), str) or not secret.reveal().isascii():
        raise InvalidInputError(
            argument="storage_options",
            field="token",
            reason="the token of Unity Catalog must be text of ASCII",
        )
    return Access(parse_address(text), Secret(secret.reveal().strip())), rest
