"""What the stores of servers share: their errors, answers that are lost, a store without create."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from txlog.base.errors import (
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    StoreError,
    TxlogError,
    UnsupportedFeatureError,
)
from txlog.base.texts import without_secrets
from txlog.store.base import BasicStore, Store
from txlog.store.cloud_options import without_options

_WRITES = ("create", "replace", "write")  # They fail if a bucket or a folder is missing.


class ServerStore(BasicStore):
    """A base class of stores whose requests go to a server through a library."""

    root: str
    options: Mapping[str, Any]
    reads_at_once: ClassVar[int] = 16

    def __repr__(self) -> str:
        return f"{type(self).__name__}({without_secrets(self.root)!r})"

    @contextmanager
    def _errors(self, operation: str, path: str) -> Iterator[None]:
        """Turn all errors of a library into one `TxlogError`."""
        try:
            yield
        except TxlogError:
            raise
        except Exception as error:  # Libraries raise errors of their own, and of others.
            raise self._error(operation, path, error) from error

    def _error(self, operation: str, path: str, error: Exception) -> TxlogError:
        """Return the `TxlogError` for an error of a library."""
        if isinstance(error, FileNotFoundError) and operation not in _WRITES:
            return NotFoundError(path=path, reason="there is no such file", table=self.root)
        if isinstance(error, ValueError) and "parse path" in str(error):  # obstore's check.
            return InvalidInputError(
                argument="path", reason=f"{path!r} cannot be the path of a file"
            )
        # What follows are the settings of obstore's client.
        message = str(error).partition("\n\nDebug source")[0].strip()
        return StoreError(
            operation=operation,
            path=path,
            table=self.root,
            reason=f"{type(error).__name__}: {without_options(message, self.options)}",
            remedy="Check the address, the credentials and the connection, and try again",
        )

    def _unknown(self, path: str, reason: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            path=path,
            table=self.root,
            reason=reason,
            remedy="Check whether the file exists before you write it again",
        )

    def _not_probed(self, path: str, reason: str) -> StoreError:
        return StoreError(
            operation="create",
            path=path,
            table=self.root,
            reason=f"the store could not be probed: {reason}",
            remedy="Check the address and the connection, and try again",
        )

    def _without_create(self, reason: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            path=self.root,
            features=("atomic create",),
            reason=f"{reason}, so one writer's commit could overwrite another's",
            remedy="Set a commit coordinator with the storage option 'txlog.coordinator', or use "
            "a store with conditional puts. Reading works",
        )

    def _has(self: Store, path: str, data: bytes) -> bool | None:
        """Return whether a file has these bytes; None if it cannot be read.

        If it has, the call whose answer was lost has written it.
        """
        try:
            return self.read(path) == data
        except TxlogError:
            return None


def frozen(options: Any) -> Any:
    """Return options with their values as a key: another value may lead to another server."""
    if hasattr(options, "connection_key"):
        return options.connection_key
    if isinstance(options, Mapping):
        return tuple(sorted((str(name), frozen(value)) for name, value in options.items()))
    return repr(options)
