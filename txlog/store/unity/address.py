"""Addresses of Unity Catalog: `uc://host[:port]/catalog[/schema.table]`, and the token."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import Any, NamedTuple

from txlog.base.errors import InvalidInputError, TxlogError
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


class Secret(str):
    """A text that no `repr` or pickle shows. A pickled one is empty afterwards.

    Whoever asks for the text gets it: `str`, `json.dumps`, and options of Spark.
    """

    __slots__ = ()

    def reveal(self) -> str:
        """Return the text."""
        return str(self)

    def __repr__(self) -> str:
        return "…"

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce_ex__(self, protocol: object) -> tuple[type[Secret], tuple[()]]:
        return Secret, ()


class AskedSecret(Secret):
    """A token that a function returns, which is asked each time; as a text, it is the first one."""

    __slots__ = ("_ask", "_last")
    _ask: Callable[[], str]
    _last: tuple[str, ...]

    def __new__(cls, ask: Callable[[], str]) -> AskedSecret:
        """Ask the function once; errors as for `reveal`."""
        first = _asked(ask)
        made = super().__new__(cls, first)
        made._ask, made._last = ask, (first,)
        return made

    def reveal(self) -> str:
        """Return the token that the function returns now.

        Raises
        ------
        InvalidInputError
            It raised an error, or returned something else.
        """
        found = _asked(self._ask)
        if found not in self._last:
            self._last = (*self._last, found)[-_REMEMBERED:]
        return found

    @property
    def known(self) -> tuple[str, ...]:
        """The tokens that were returned last, which no message may show."""
        return self._last


def _asked(ask: Callable[[], str]) -> str:
    try:
        found: Any = ask()
    except TxlogError:
        raise
    except Exception as error:  # Its text may have the token.
        reason = f"the function for the token of Unity Catalog raised {type(error).__name__}"
        raise _unfit(reason) from error
    if not isinstance(found, str) or not found.strip():
        raise _unfit("the function for the token of Unity Catalog returned no text")
    return _sound(found.strip(), "the function")


def _unfit(reason: str) -> InvalidInputError:
    return InvalidInputError(
        argument="storage_options",
        field="token",
        reason=reason,
        remedy="Pass a function without parameters that returns a token, which is valid now",
    )


_REMEMBERED = 8


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

        Raises
        ------
        InvalidInputError
            It has characters that a header cannot have.
        """
        if self.given:
            return _sound(self.given.reveal(), "the storage option")
        if self.address.is_private:
            for name in VARIABLES:
                if token := os.environ.get(name, "").strip():
                    return _sound(token, f"the variable {name}")
        return ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The tokens that no message may show."""
        return self.given.known if isinstance(self.given, AskedSecret) else (self.token,)

    def with_token_of(self, other: Access) -> Access:
        """Return the access with the token of another one if it has none, and the server is one."""
        is_same = self.address.server == other.address.server
        return self if self.given or not is_same else Access(self.address, other.given)


def _sound(token: str, source: str) -> str:
    """Return a token; raise if a header cannot have it. An error never quotes it."""
    if token.isascii() and token.isprintable():
        return token
    raise InvalidInputError(
        argument="storage_options",
        field="token",
        reason=f"the token of Unity Catalog in {source} has characters that no token has: line "
        "ends, control characters, or others than those of ASCII",
        remedy="Copy the token again, as one line",
    )


def is_address(text: object) -> bool:
    """Return whether a text is an address of Unity Catalog."""
    return isinstance(text, str) and text.partition("://")[0].lower() in SCHEMES and "://" in text


def is_step(text: str) -> bool:
    """Return whether a text can be the name of a catalog, a schema or a table in an address."""
    return _STEP.fullmatch(text) is not None


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
    is_fit = (
        found is not None and int(found["port"] or 1) in range(1, 65536) and _is_host(found["name"])
    )
    if not is_fit or len(steps) not in (1, 3) or not all(map(is_step, steps)):
        raise InvalidInputError(
            argument="uri",
            reason=f"{without_secrets(text)!r} is not an address of Unity Catalog",
            remedy="Write uc://host/catalog, or uc://host/catalog/schema.table for a table. The "
            f"token is the storage option 'token' or the variable {VARIABLES[0]}",
        )
    table = ".".join(steps[1:]) or None
    return Address(scheme.lower(), host, steps[0], table)


def _is_host(name: str) -> bool:
    """Return whether a name can be that of a host: words of up to 63 letters, or an address."""
    if name.startswith("["):
        with suppress(ValueError):
            return IPv6Address(name[1:-1]).version == 6
        return False
    words = name.removesuffix(".").split(".")
    return len(name) < 254 and all(0 < len(word) < 64 for word in words)


def access_of(text: str, options: Mapping[str, Any]) -> tuple[Access, dict[str, Any]]:
    """Return an address with its token, and the other options: those of the tables' storage.

    Raises
    ------
    InvalidInputError
        The text is not an address, or the token is not text.
    """
    names = {name for name in options if str(name).lower() in ("token", TOKEN)}
    rest = {name: value for name, value in options.items() if name not in names}
    # As it is written, then in another case, then the one of a catalog.
    ranked = sorted(names, key=lambda name: (name.lower() == TOKEN, name != "token", name))
    token = next((options[name] for name in ranked if options[name] is not None), "")
    if isinstance(token, AskedSecret):
        return Access(parse_address(text), token), rest
    if callable(token):
        return Access(parse_address(text), AskedSecret(token)), rest
    if not isinstance(token, str):
        raise InvalidInputError(
            argument="storage_options",
            field="token",
            reason="the token of Unity Catalog must be text of ASCII, or a function that "
            "returns it",
        )
    secret = Secret(token.strip())
    _sound(secret.reveal(), "the storage option")
    return Access(parse_address(text), secret), rest
