"""Pin versions, and register shallow clones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from txlog.actions.table import DomainMetadata
from txlog.base.arrow import pc
from txlog.base.columns import flat
from txlog.base.errors import (
    AlreadyExistsError,
    InvalidTypeError,
    LogCorruptError,
    NotFoundError,
    require_whole,
)
from txlog.commit.app_versions import AnyAppVersion
from txlog.commit.context import Context
from txlog.commit.intent import Intent
from txlog.commit.operation import Operation
from txlog.data_files.deletions import adds_of
from txlog.log.paths import canonical_keys
from txlog.protocol.access import upgraded
from txlog.snapshot.live_files import load_files
from txlog.snapshot.load import load_snapshot
from txlog.snapshot.references import (
    CLONE_PREFIX,
    PIN_PREFIX,
    CloneAttempt,
    Pin,
    RegisteredClone,
    clones_of,
    no_pin,
    pins_of,
    reference_domain,
    require_pin_name,
)
from txlog.snapshot.snapshot import Snapshot
from txlog.store.base import Store
from txlog.store.branches import require_main, without_branch
from txlog.store.open import open_store
from txlog.store.places import names_below, same_place
from txlog.verbs.restore import files_without, require_no_vacuum, require_there


class SetPin(Operation):
    """Give a version a name, or move a name to another version."""

    name = "SET PIN"

    def __init__(self, pin: str, version: int, reason: str | None, *, exists: bool = False) -> None:
        """Take the pin; `exists` says whether a pin with this name exists already.

        Raises
        ------
        InvalidInputError
            The name, the version or the reason is not valid.
        """
        require_pin_name(pin)
        require_whole("version", version)
        if reason is not None and not isinstance(reason, str):
            raise InvalidTypeError(
                argument="reason", reason=f"text was expected, not {type(reason).__name__}"
            )
        self._pin, self._version, self._reason = pin, version, reason
        self._exists = exists

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the domain of the pin.

        Raises
        ------
        AlreadyExistsError
            There is a pin of this name.
        NotFoundError
            There is no such version, it cannot be rebuilt, or there is no pin to move.
        DataFileError
            Files of the version are missing; the error names them.
        """
        pins = pins_of(base)
        if self._pin in pins and not self._exists:
            raise AlreadyExistsError(
                path=base.root,
                reason=f"the table already has a pin {self._pin!r}, of version "
                f"{pins[self._pin].version}",
                remedy="Move it with pins.update, or choose another name",
            )
        if self._exists and self._pin not in pins:
            raise no_pin(base, self._pin)
        require_whole_version(
            self.context, base, self._version, "Nothing was committed; pin a later version"
        )
        pin = Pin(self._pin, self._version, self._reason, self.context.effects.now_ms())
        parameters = {"name": pin.name, "version": pin.version}
        pinned = _intent(self.context, base, self.name, pin.to_domain(), parameters)
        return replace(pinned, revives=True)


def require_whole_version(
    context: Context, base: Snapshot, version: int, remedy: str, *, beside_vacuum: bool = False
) -> None:
    """Raise unless all files of a version exist; files of the latest version are not checked.

    `beside_vacuum`: nothing will keep the files, so a vacuum that deletes them is no error.

    Raises
    ------
    NotFoundError
        There is no such version, or it cannot be rebuilt.
    DataFileError
        Files of the version are missing; the error names them, and has the remedy.
    CommitConflictError
        A vacuum may be deleting such files.
    """
    if version == base.version:
        return
    target = load_snapshot(context.store, version=version)
    then, now = (load_files(context.store, one).live for one in (target, base))
    gone: pa.Table = files_without(then, now)
    if not beside_vacuum:
        require_no_vacuum(context, base)
    require_there(context, adds_of(gone), version, remedy)


class DropPin(Operation):
    """Remove a pin: from then on only the retention decides whether its version is kept."""

    name = "DROP PIN"

    def __init__(self, pin: str) -> None:
        self._pin = require_pin_name(pin)

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the domain, removed; raises `NotFoundError` if there is no such pin."""
        domain = reference_domain(base, PIN_PREFIX, self._pin)
        if domain is None:
            raise no_pin(base, self._pin)
        gone = domain.model_copy(update={"removed": True})
        return _intent(self.context, base, self.name, gone, {"name": self._pin})


class RegisterClone(Operation):
    """Register a shallow clone, so that a vacuum keeps the files to which it refers.

    With an attempt, the clone is not made yet: its version is kept, too (MNT-15).
    """

    name = "REGISTER CLONE"

    def __init__(
        self,
        clone: RegisteredClone,
        attempt: CloneAttempt | None = None,
        named_by: tuple[Store, Snapshot] | None = None,
    ) -> None:
        """Take the clone; `named_by` is the version that is cloned if it is of another table."""
        self._clone = clone
        self._attempt = attempt
        self._named_by = named_by

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the domain of the clone.

        Raises
        ------
        CommitConflictError
            A vacuum may be deleting files that the clone needs.
        NotFoundError, DataFileError
            The version of the attempt cannot be rebuilt, or files of it are missing.
        """
        require_no_vacuum(self.context, base)
        clone, attempt = self._clone, self._attempt
        if attempt is not None and self._named_by is not None:
            _require_named(self.context, base, *self._named_by)
        elif attempt is not None:
            require_whole_version(
                self.context, base, attempt.version, "Nothing was committed; clone a later version"
            )
        known = _known(base, clone.id)
        if known is not None:
            now_ms = self.context.effects.now_ms()
            young = (one for one in known.attempts if one.is_young(now_ms))
            clone = replace(
                clone, is_made=clone.is_made or known.is_made, attempts=(*clone.attempts, *young)
            )
        if attempt is not None and attempt not in clone.attempts:
            clone = replace(clone, attempts=(*clone.attempts, attempt))
        if clone == known:
            return None
        intent = _intent(self.context, base, self.name, clone.to_domain(), {"target": clone.uri})
        return replace(intent, revives=True)


def _require_named(context: Context, base: Snapshot, store: Store, named_by: Snapshot) -> None:
    """Raise unless the files of a table exist that a version of another one names.

    Those of the table's latest version are not checked.
    """
    named = load_files(store, named_by).live
    now = load_files(context.store, base).live
    names, kept = (
        names_below(base.root, flat(canonical_keys(rows["path"])).cast(pa.string()))
        for rows in (named, now)
    )
    # The file of a vector may be gone although the table still has the data file.
    is_kept = pc.and_(pc.is_in(names, value_set=kept), pc.is_null(flat(named["dv_id"])))
    gone = named.filter(pc.invert(is_kept))
    there = replace(context, store=store)
    require_there(
        there, adds_of(gone), named_by.version, "Nothing was committed; clone a later version"
    )


class FinishClone(Operation):
    """Record that an attempt to make a registered clone has ended (MNT-15).

    If the clone is not made and has no other attempt, it is forgotten.
    """

    name = "FINISH CLONE"

    def __init__(
        self,
        clone_id: str,
        attempts: Collection[str],
        *,
        is_made: bool,
        txn: AnyAppVersion | None = None,
    ) -> None:
        """Take the ids of the ended attempts; those with the same `txn` have ended, too."""
        self._id = clone_id
        self._attempts = frozenset(attempts)
        self._is_made = is_made
        self._txn = None if txn is None else (txn[0], txn[1])

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the domain of the clone without the attempts; None if nothing changes."""
        known = _known(base, self._id)
        if known is None:  # Somebody has forgotten it.
            return None
        now_ms = self.context.effects.now_ms()
        left = tuple(
            one
            for one in known.attempts
            if one.id not in self._attempts
            and (one.txn is None or one.txn != self._txn)
            and not (one.is_new and self._is_made)  # Nobody can make a new table there.
            and one.is_young(now_ms)
        )
        after = replace(known, is_made=known.is_made or self._is_made, attempts=left)
        if after == known:
            return None
        domain = after.to_domain()
        if not after.is_made and not left:
            domain = domain.model_copy(update={"removed": True})
        return _intent(
            self.context, base, self.name, domain, {"target": known.uri, "isMade": after.is_made}
        )


def _known(base: Snapshot, clone_id: str) -> RegisteredClone | None:
    return next((one for one in clones_of(base) if one.id == clone_id), None)


class ForgetClone(Operation):
    """Forget a clone: a vacuum may delete files to which only it refers."""

    name = "FORGET CLONE"

    def __init__(self, target: str) -> None:
        self._target = target

    def intent(self, base: Snapshot) -> Intent | None:
        """Return the domain of the clone, removed; `NotFoundError` if there is none."""
        try:
            clones = clones_of(base)
        except LogCorruptError:  # One of them contains nothing sensible: it has only an id.
            domain = reference_domain(base, CLONE_PREFIX, self._target)
            if domain is None:
                raise
            gone = domain.model_copy(update={"removed": True})
            return _intent(self.context, base, self.name, gone, {"target": self._target})
        root = open_store(self._target, without_branch(self.context.store.options)).root
        clone = next(
            (
                one
                for one in clones
                if self._target in (one.id, one.uri) or same_place(one.uri, root)
            ),
            None,
        )
        if clone is None:
            known = ", ".join(one.uri for one in clones)
            raise NotFoundError(
                path=base.root,
                reason=f"the table has no registered clone at {self._target!r}",
                remedy=f"Choose from {known}"
                if known
                else "Forget it in the table of which it is a clone: this one knows none",
            )
        domain = clone.to_domain().model_copy(update={"removed": True})
        return _intent(self.context, base, self.name, domain, {"target": clone.uri})


def _intent(
    context: Context,
    base: Snapshot,
    operation: str,
    domain: DomainMetadata,
    parameters: Mapping[str, Any],
) -> Intent:
    require_main(context.store, operation)
    protocol = upgraded(base.protocol, ["domainMetadata"])
    changes = protocol != base.protocol
    return Intent(
        operation=operation,
        kind="protocol" if changes else "append",  # It adds no rows.
        read_version=base.version,
        protocol=protocol if changes else None,
        domains=(domain,),
        parameters=parameters,
    )
