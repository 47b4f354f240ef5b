"""The errors of txlog, grouped by what a caller can do next.

An error lists facts as fields and makes its message from them, in one fixed form:
`[code] reason (fact=value, …). Remedy.` Match on the class or on `code`, never on the message.
"""

from __future__ import annotations

import errno
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import update_wrapper, wraps
from inspect import getattr_static, isfunction
from operator import index
from threading import local
from types import FrameType, FunctionType
from typing import Any, ClassVar, Literal, TypeVar, cast

from txlog.base.texts import without_secrets, without_secrets_within

Retry = Literal["never", "as_is", "after_refresh"]

Function = TypeVar("Function", bound=Callable[..., Any])

_PROSE = ("reason", "remedy")


@dataclass(eq=False, kw_only=True)
class TxlogError(Exception):
    """Base class of all errors of txlog.

    docs/errors.md has a chapter for each `code`; `txlog help CODE` shows it. `code` is stable and
    append-only. `retry` says whether the same call can succeed: `never`, `as_is`, or
    `after_refresh` of the table. All errors pickle, so they cross process borders.
    """

    code: ClassVar[str] = "txlog"
    summary: ClassVar[str] = "txlog failed"  # The message if no reason is given.
    retry: ClassVar[Retry] = "never"

    reason: str = ""  # What is wrong, in one clause.
    remedy: str = ""  # What the caller can do, in one sentence.
    table: str | None = None  # The root of the table. A relative `path` is below it.

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a fact, without the passwords and keys that its URIs contain.

        All errors are cleaned here, so no place that raises one has to think of it.
        """
        if name in ("path", "table") and isinstance(value, str):
            value = without_secrets(value)
        elif name == "features":
            value = tuple(map(without_secrets_within, value))
        elif isinstance(value, str):
            value = without_secrets_within(value)
        super().__setattr__(name, value)

    def __str__(self) -> str:
        facts = ", ".join(
            f"{name}={value!r}"
            for name in self._facts()
            if (value := getattr(self, name)) not in (None, ())
        )
        body = f"[{self.code}] {self.reason or self.summary}" + (f" ({facts})" if facts else "")
        return f"{body}. {self.remedy}" if self.remedy else body

    def _facts(self) -> list[str]:
        names = [field.name for field in fields(self) if field.name not in _PROSE]
        path = getattr(self, "path", None)
        if self.table is not None and path is not None and path.startswith(self.table):
            names.remove("table")  # The path contains the table's root.
        return names

    def __reduce__(self) -> tuple[Callable[..., TxlogError], tuple[Any, ...]]:
        # `Exception` pickles only positional arguments, and this class has none.
        return _restore, (type(self), {f.name: getattr(self, f.name) for f in fields(self)})


def _restore(kind: type[TxlogError], state: dict[str, Any]) -> TxlogError:
    return kind(**state)


def reason_of(error: BaseException) -> str:
    """Return the reason of an error, for another error. It has no code, facts or remedy."""
    return error.reason or error.summary if isinstance(error, TxlogError) else str(error)


class naming_table:  # noqa: N801  # Used as a function, like `contextlib.suppress`.
    """Add the table's name to each `TxlogError` that leaves the `with` block, unless it has one."""

    __slots__ = ("root",)

    def __init__(self, root: str) -> None:
        self.root = root

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TxlogError) and error.table is None:
            error.table = self.root


@dataclass(eq=False, kw_only=True)
class NotFoundError(TxlogError, FileNotFoundError):
    """The table, or the version of it, does not exist."""

    code = "not-found"
    summary = "not found"

    path: str | None = None
    version: int | None = None


@dataclass(eq=False, kw_only=True)
class AlreadyExistsError(TxlogError, FileExistsError):
    """A table is already there."""

    code = "already-exists"
    summary = "already exists"

    path: str | None = None


@dataclass(eq=False, kw_only=True)
class InvalidInputError(TxlogError, ValueError):
    """An argument, a predicate or data is wrong. It is a `ValueError` too."""

    code = "invalid-input"
    summary = "invalid input"

    argument: str | None = None
    field: str | None = None  # The column, dotted when nested.


@contextmanager
def of_argument(argument: str, field: str | None = None) -> Iterator[None]:
    """Name the argument from which an expression came in the errors about it.

    Expressions do not know whose they are: their errors say `where`, as for a predicate.
    """
    try:
        yield
    except InvalidInputError as error:
        if error.argument == "where":
            error.argument, error.field = argument, error.field or field
        raise


@dataclass(eq=False, kw_only=True)
class InvalidTypeError(InvalidInputError, TypeError):
    """An argument is of a wrong type. It is a `TypeError` too."""

    code = "invalid-type"


def require_whole(argument: str, value: object, least: int = 0, *, remedy: str = "") -> int:
    """Return an argument as a Python integer; NumPy's integers are taken too.

    Raises
    ------
    InvalidTypeError
        It is no integer.
    InvalidInputError
        It is smaller than `least`.
    """
    is_whole = hasattr(value, "__index__") and not isinstance(value, bool)
    number = index(value) if is_whole else None  # type: ignore[arg-type]
    if number is None or number < least:
        raise (InvalidTypeError if number is None else InvalidInputError)(
            argument=argument,
            reason=f"a whole number from {least} was expected, not {_shown(value)}",
            remedy=remedy,
        )
    return number


def require_flags(**flags: object) -> None:
    """Raise unless each argument is True or False.

    A value such as "no" counts as true, and None as false: both may delete what a caller wants to
    keep.

    Raises
    ------
    InvalidTypeError
        One is not; the error names it.
    """
    for name, value in flags.items():
        if type(value) is not bool:
            raise InvalidTypeError(
                argument=name, reason=f"True or False was expected, not {_shown(value)}"
            )


def require_texts(**texts: object) -> None:
    """Raise `InvalidTypeError` unless each argument is text or None; the error names it."""
    for name, value in texts.items():
        if value is not None and not isinstance(value, str):
            raise InvalidTypeError(
                argument=name, reason=f"text was expected, not {type(value).__name__}"
            )


def require_mappings(**mappings: object) -> None:
    """Raise `InvalidTypeError` unless each argument is a mapping or None; the error names it."""
    for name, value in mappings.items():
        if value is not None and not isinstance(value, Mapping):
            raise InvalidTypeError(
                argument=name, reason=f"a mapping was expected, not {_shown(value)}"
            )


# What code that many methods share calls an argument, and what these methods call it.
_CALLED = {
    "Idempotency-Key": ("txn",),
    "allowed": ("sources",),
    "catalog": ("database",),
    "column": ("columns", "names"),
    "cluster_by": ("cols",),
    "columns": ("sort_by", "on", "cols", "constraints"),
    "commit": ("wanted", "target", "a", "b"),
    "data": ("source", "updates", "new_values", "set", "values", "constraints", "columns", "column",
             "schema", "df", "uri", "operation"),
    "description": ("comment",),
    "df": ("source", "data"),
    "feature": ("drop", "add", "featureName"),
    "features": ("properties", "featureName"),
    "from": ("a",),
    "host": ("address",),
    "identity": ("cols", "schema", "data", "df"),
    "keys": ("on",),
    "metadata": ("column", "columns", "schema", "data"),
    "name": ("column", "columns", "version", "branch", "tableOrViewName", "identifier"),
    "partition_by": ("names", "cols"),
    "path": ("tokens", "uri"),
    "predicate": ("on",),
    "properties": ("names", "value"),
    "reader": ("readerVersion",),
    "retention_hours": ("retentionHours",),
    "schema": ("data", "source", "df", "columns", "column", "cols"),
    "source": ("data", "uri"),
    "storage_options": ("hadoopConf",),
    "timestamp": ("start_timestamp", "end_timestamp", "query"),
    "to": ("b",),
    "updates": ("new_values", "set", "values", "source", "data"),
    "uri": (
        "target", "table", "location", "root", "path", "tableOrViewName", "identifier", "query",
    ),
    "values": ("texts",),
    "version": ("start_version", "end_version", "query"),
    "wanted": ("commit", "target"),
    "where": ("predicate", "filter", "condition", "partitionFilter"),
    "writer": ("writerVersion",),
}  # fmt: skip


def in_callers_words(function: Function) -> Function:
    """Let the errors of a public function call an argument as the function does.

    Code that many functions share has one name for it. If several arguments may be meant, it is one
    whose value the error shows, or else the first that was given.
    """

    @wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except InvalidInputError as error:
            rename_argument(error, function, args, named)
            raise

    return cast("Function", called)


def rename_argument(
    error: InvalidInputError,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    named: Mapping[str, Any],
) -> None:
    """Let an error call an argument as the function does from which it comes, if that differs."""
    from inspect import signature

    takes = signature(function)
    given = takes.bind(*args, **named).arguments
    several = [one.name for one in takes.parameters.values() if one.kind is one.VAR_POSITIONAL]
    use_given_names(error, dict.fromkeys(several, ()) | given)


def use_given_names(error: InvalidInputError, given: Mapping[str, Any]) -> None:
    """Let an error call an argument as the caller did, who gave these values by these names."""
    if error.argument is not None and given.get(error.argument) is None:
        others = [one for one in _CALLED.get(error.argument, ()) if one in given]
        shown = [one for one in others if _names(error.reason, _shown(given[one]))]
        if shown:  # The longest: a short text may be there by chance. Or the last: "…, not 0".
            texts = {one: _shown(given[one]) for one in shown}
            error.argument = max(
                shown, key=lambda one: (len(texts[one]), error.reason.rfind(texts[one]))
            )
        elif others:
            error.argument = others[0]


def _names(reason: str, value: str) -> bool:
    """Return whether a reason shows a value: "constraint" does not show `str`."""
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", reason) is not None


def named_for_callers(cls: type, shown: str | None = None) -> None:
    """Let errors call the public methods of a class, and their arguments, as its callers do.

    A `TypeError` of Python about a wrong argument shows the name of the class in which a method is
    written: that of a base class, or of one that callers reach through an attribute. For arguments
    see `in_callers_words`.

    Parameters
    ----------
    shown
        What callers write before the method. Default: the name of the class.
    """
    for name in dir(cls):
        static = getattr_static(cls, name)
        is_static = isinstance(static, staticmethod | classmethod)
        method = static.__func__ if is_static else static
        if not isfunction(method) or name.startswith("_"):
            continue
        if hasattr(method, _IN_WORDS):  # Of a base class: it is made anew for this one.
            method = vars(method)["__wrapped__"]
        if name not in vars(cls):  # The base class and its other subclasses keep theirs.
            given = method
            method = FunctionType(
                given.__code__, given.__globals__, name, given.__defaults__, given.__closure__
            )
            method.__kwdefaults__ = given.__kwdefaults__
            update_wrapper(method, given)
            vars(method).pop("__wrapped__")  # It is no wrapper.
            vars(method).update(vars(given))
            setattr(cls, name, method)
        method.__qualname__ = f"{shown or cls.__name__}.{name}"
        in_words = in_callers_words(method)
        setattr(in_words, _IN_WORDS, True)
        setattr(cls, name, type(static)(in_words) if is_static else in_words)


_IN_WORDS = "_txlog_in_callers_words"


def _shown(value: object) -> str:
    is_plain = isinstance(value, int | str | float | None) and len(repr(value)) < 50
    return without_secrets_within(repr(value)) if is_plain else type(value).__name__


@dataclass(eq=False, kw_only=True)
class SchemaMismatchError(InvalidInputError):
    """Data does not fit the table's schema or constraints."""

    code = "schema-mismatch"
    summary = "data does not fit the table"

    path: str | None = None


@dataclass(eq=False, kw_only=True)
class DuplicateKeyError(SchemaMismatchError):
    """Two rows would have the same values of a unique key; nothing was committed."""

    code = "duplicate-key"
    summary = "two rows would have the same key"

    key: tuple[object, ...] = ()  # The values of the key columns, of one of these keys.
    version: int | None = None  # A version that has the key; None: only the new rows have it.


@dataclass(eq=False, kw_only=True)
class AuditFailedError(TxlogError):
    """Checks of an audit do not hold; nothing was published, and the branch stays."""

    code = "audit-failed"
    summary = "checks do not hold"

    branch: str | None = None
    version: int | None = None  # The version of the branch that was checked.
    failed: tuple[str, ...] = ()  # The names of the checks that do not hold.
    # The values that each check is about, by its name: those of its aggregates by their texts.
    figures: Mapping[str, Mapping[str, Any]] | None = None


@dataclass(eq=False, kw_only=True)
class UnsupportedFeatureError(TxlogError):
    """The table or the call needs a feature that txlog does not implement; nothing was changed."""

    code = "unsupported-feature"
    summary = "unsupported feature"

    features: tuple[str, ...] = ()
    path: str | None = None
    field: str | None = None  # The column, dotted when nested.


def not_installed(
    extra: str, feature: str, reason: str, path: str | None = None
) -> UnsupportedFeatureError:
    """Return the error for a feature that needs an extra which is not installed."""
    return UnsupportedFeatureError(
        features=(feature,),
        path=path,
        reason=reason,
        remedy=f"Install it: pip install 'pyspark-txlog[{extra}]'",
    )


@dataclass(eq=False, kw_only=True)
class CommitConflictError(TxlogError):
    """Another writer's commit forbids this one; nothing was committed."""

    code = "commit-conflict"
    summary = "another writer's commit forbids this one"
    retry = "after_refresh"

    version: int
    rule: str  # Id of the broken rule in spec/commit.md, such as "CON-3".
    path: str | None = None
    field: str | None = None  # The column that both writers changed.


@dataclass(eq=False, kw_only=True)
class RetriesExhaustedError(CommitConflictError):
    """Other writers won every attempt until the deadline; nothing was committed."""

    code = "retries-exhausted"
    summary = "other writers won every attempt"


@dataclass(eq=False, kw_only=True)
class OutcomeUnknownError(TxlogError):
    """The store's answer to a commit was lost, and the commit could not be read back."""

    code = "outcome-unknown"
    summary = "it is unknown whether the commit landed"
    retry = "after_refresh"

    path: str
    version: int | None = None
    txn_id: str | None = None
    # True: this commit's file exists; it is only unknown whether it survives a crash.
    visible: bool | None = None


@dataclass(eq=False, kw_only=True)
class StoreError(TxlogError):
    """The store refused or failed: no permission, no space, no connection."""

    code = "store"
    summary = "the store failed"
    retry = "as_is"

    path: str
    operation: str


@dataclass(eq=False, kw_only=True)
class EngineError(TxlogError):
    """The engine (a cluster) could not run the work, or lost its workers; nothing was committed.

    No version refers to the files that the work left.
    """

    code = "engine"
    summary = "the engine failed"
    retry = "as_is"


@dataclass(eq=False, kw_only=True)
class OutOfMemoryError(TxlogError, MemoryError):
    """The process, or Arrow in it, got no more memory or threads; a verb may have committed."""

    code = "out-of-memory"
    summary = "there is not enough memory"

    path: str | None = None  # The file that was read.


@dataclass(eq=False, kw_only=True)
class DataFileError(TxlogError):
    """A data file is missing, unreadable, or contradicts the log."""

    code = "data-file"
    summary = "a data file cannot be read"

    path: str
    version: int | None = None


@dataclass(eq=False, kw_only=True)
class LogCorruptError(TxlogError):
    """The transaction log breaks the protocol."""

    code = "log-corrupt"
    summary = "the transaction log is damaged"

    path: str | None = None  # The log file.
    line: int | None = None  # From 1.
    field: str | None = None
    version: int | None = None


@dataclass(eq=False, kw_only=True)
class BadDeletionVectorError(LogCorruptError):
    """A deletion vector is missing, torn, or contradicts the log."""

    code = "bad-deletion-vector"
    summary = "a deletion vector cannot be read"


@dataclass(eq=False, kw_only=True)
class InternalError(TxlogError):
    """A bug of txlog itself."""

    code = "internal"
    summary = "txlog broke one of its own rules"


class TxlogWarning(UserWarning):
    """Something is damaged or odd, but the result is still correct."""


Place = tuple[str, int, dict[str, Any]]  # A file, a line from 1, and the globals of its module.

# Packages that call txlog for somebody, or that txlog calls: a line of theirs tells a user nothing.
_PACKAGES = ("pandas", "polars", "pyarrow", "pydantic", "pyspark", "torch", "typer", "click")
_MODULES = ("concurrent", "contextlib", "functools", "threading")
_BETWEEN = frozenset(("txlog", "pyspark_txlog", *_MODULES, *_PACKAGES))


class _Asked(local):
    """Who asked for what this thread does, if another thread did."""

    place: Place | None = None


_asked = _Asked()


def calling_place() -> Place | None:
    """Return the line that called txlog, however many calls of txlog are in between.

    If another thread asked for what this thread does (`asked_from`), it is that thread's line.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _BETWEEN:
            return frame.f_code.co_filename, frame.f_lineno, frame.f_globals
        frame = frame.f_back
    return _asked.place


@contextmanager
def asked_from(place: Place | None) -> Iterator[None]:
    """Let warnings in the `with` block show the line that asked for it in another thread."""
    before = _asked.place
    _asked.place = place
    try:
        yield
    finally:
        _asked.place = before


def warn_caller(message: str) -> None:
    """Warn with the line that called txlog. All warnings of txlog are given here."""
    filename, line, module = calling_place() or ("<txlog>", 1, {})
    warnings.warn_explicit(
        without_secrets_within(message),
        TxlogWarning,
        filename,
        line,
        module.get("__name__"),
        module.setdefault("__warningregistry__", {}),
    )


def warn_committed(message: str) -> None:
    """Warn of a failure after a commit landed.

    If warnings are errors (`-W error`), the message goes to stderr. An exception would look like a
    failed commit, and a retry would write the rows twice.
    """
    try:
        warn_caller(message)
    except TxlogWarning:
        sys.stderr.write(f"TxlogWarning: {without_secrets_within(message)}\n")


@contextmanager
def cleaning(clean: Callable[[], None]) -> Iterator[None]:
    """Delete temporary files at the end of the `with` block, however it ends.

    If that fails, it hides no error, and lets nothing fail.
    """
    try:
        yield
    except BaseException as error:
        clean_after(error, clean)
        raise
    tidied(clean)


def clean_after(error: BaseException, clean: Callable[[], None]) -> None:
    """Delete files after an error, which is what the caller has to know."""
    try:
        clean()
    except Exception as failure:  # A stranger's operation may raise anything.
        error.add_note(f"Files that were written for it could not be deleted: {failure}")


def tidied(clean: Callable[[], None], done: str = "") -> None:
    """Delete files that are no longer needed; a failure is a warning.

    What was done is valid without it. If it raised, that would seem to have failed.
    """
    try:
        clean()
    except Exception as failure:  # A stranger's operation may raise anything.
        warn_committed(
            f"{done}files that are no longer needed could not be deleted: {failure}. A vacuum "
            "deletes them later"
        )


_FULL = "Free some space and try again"
_PERMISSION = "Check the owner and mode of the file and of the folders above it"
_DEFAULT = "Try again. If the error stays, check the disk"

_MAKES = ("create", "replace")  # In this case the folder is missing, and it cannot be made.

REMEDIES = {
    errno.ENOENT: "The folder cannot be made there. Check the path",
    errno.ENOSPC: f"The disk is full. {_FULL}",
    errno.EDQUOT: f"The quota is used up. {_FULL}",
    errno.EFBIG: "The file system does not accept a file of this size",
    errno.EACCES: f"Permission is missing. {_PERMISSION}",
    errno.EPERM: f"The operation is not permitted. {_PERMISSION}",
    errno.EROFS: "The file system is mounted read-only. Mount it for writing",
    errno.ENAMETOOLONG: "The name is too long for the file system. Use a shorter one",
    errno.ENOTDIR: "A file is where a folder was expected. Check the path",
    errno.EISDIR: "A folder is where a file was expected. Check the path",
    errno.EEXIST: "A file with this new name exists already. Check what it is",
    errno.ELOOP: "Symbolic links form a circle. Check the path",
    errno.EXDEV: "Replace the link by a folder, or make the table in the folder to which it leads",
    errno.EMFILE: "The process has too many open files. Raise `ulimit -n`, or open fewer",
    errno.ENFILE: "The machine has too many open files. Raise its limit",
    errno.EIO: "The disk itself failed. Check the disk before you trust what was written",
    errno.ESTALE: "A network file system lost the file. Mount it again",
}


def store_error(error: OSError, operation: str, path: str, table: str | None = None) -> TxlogError:
    """Return the `NotFoundError` or `StoreError` for an error of the operating system."""
    is_missing = isinstance(error, FileNotFoundError | NotADirectoryError)
    if is_missing and operation not in _MAKES:
        return NotFoundError(path=path, reason="there is no such file", table=table)
    return StoreError(
        operation=operation,
        path=path,
        table=table,
        reason=error.strerror or str(error) or type(error).__name__,
        remedy=REMEDIES.get(error.errno or 0, _DEFAULT),
    )


_NO_THREAD = ("Failed to launch worker thread", "can't start new thread")  # Arrow, Python.
_BLAMING = (DataFileError, LogCorruptError, InvalidInputError)


def resource_error(error: BaseException, path: str | None = None) -> OutOfMemoryError | None:
    """Return the error for a call for which Python or Arrow got no more memory or threads.

    None if `error` has another reason. If an error blames a file or an argument, its causes are
    checked, too: without enough memory, a file that is not damaged cannot be read.

    Parameters
    ----------
    path
        The file that was read.
    """
    found: BaseException | None = error
    passed: list[BaseException] = []
    while isinstance(found, _BLAMING) and not any(found is one for one in passed):
        passed.append(found)  # The causes may form a circle.
        path, found = path or getattr(found, "path", None), found.__cause__
    if isinstance(found, OutOfMemoryError):
        return found
    if isinstance(found, MemoryError):
        return OutOfMemoryError(
            path=path,
            reason=f"there is not enough memory: {found}" if str(found) else "",
            remedy="Ask for fewer columns or rows, or for batches; or allow the process more "
            "memory",
        )
    if isinstance(found, TxlogError) or not any(text in str(found) for text in _NO_THREAD):
        return None
    return OutOfMemoryError(
        path=path,
        reason=f"no further thread can be started: {found}",
        remedy="Allow the process more threads or memory (`ulimit -u`, `ulimit -v`), or have Arrow "
        "use fewer: pyarrow.set_cpu_count(1)",
    )


class resource_errors:  # noqa: N801 # Used as a function.
    """Replace an error in the `with` block by its `resource_error`, if it has one."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        lacking = None if error is None else resource_error(error)
        if lacking is None or lacking is error:
            return
        if lacking.__traceback__ is None:
            raise lacking from error
        # It is one of the causes of `error`: with `error` as its cause, they would form a circle.
        raise lacking from lacking.__cause__


class os_errors:  # noqa: N801 # Used as a function.
    """Turn errors of the operating system in the `with` block into a `TxlogError`.

    Raises
    ------
    NotFoundError
        The file does not exist.
    InvalidInputError
        The text cannot be a path: it has a NUL, or characters that UTF-8 cannot encode.
    StoreError
        Any other error. The remedy depends on the errno.
    """

    __slots__ = ("operation", "path", "table")

    def __init__(self, operation: str, path: str, table: str | None = None) -> None:
        self.operation = operation
        self.path = path
        self.table = table

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Some error classes of txlog are also subclasses of `OSError`.
        if error is None or isinstance(error, TxlogError):
            return
        if isinstance(error, OSError):
            raise store_error(error, self.operation, self.path, self.table) from error
        if isinstance(error, ValueError):
            raise InvalidInputError(
                argument="path",
                table=self.table,
                reason=f"{self.path!r} cannot be the path of a file: {error}",
            ) from error
