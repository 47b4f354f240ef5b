"""The state of an opened table, and the types of the arguments of its verbs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import wraps
from operator import index
from typing import TYPE_CHECKING, Any, TypeVar

from txlog.base.errors import InvalidTypeError, resource_errors

if TYPE_CHECKING:
    from txlog.commit.app_versions import AnyAppVersion
    from txlog.commit.context import Context
    from txlog.commit.intent import UserMetadata
    from txlog.commit.operation import Done, Operation, Outcome
    from txlog.expressions.tree import Expression
    from txlog.fragments.fragment import FragmentSequence
    from txlog.lookup.indexes import Coverage
    from txlog.lookup.lookup import Lookup, LookupCache
    from txlog.protocol.properties import IndexDefinition
    from txlog.reconcile.files import FileState
    from txlog.scan.plan import ScanPlan
    from txlog.snapshot.snapshot import Snapshot
    from txlog.store.base import Store

T = TypeVar("T")
Kinds = tuple[str, ...]


def checked(face: T) -> T:
    """Check argument types at calls of a function or of a class's public methods.

    The annotations define the types. A parameter whose annotation names a type outside of `_KINDS`
    is not checked. NumPy integers become Python integers.

    Raises
    ------
    InvalidTypeError
        At a call, an argument has another type. The error names it, and nothing was done.
    OutOfMemoryError
        At a call, Python or Arrow got no more memory or threads.
    """
    if not isinstance(face, type):
        return _checked_function(face)  # type: ignore[arg-type, return-value]
    for name, member in list(vars(face).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(member, classmethod | staticmethod):
            setattr(face, name, type(member)(_checked_function(member.__func__)))
        elif callable(member) and not isinstance(member, type):
            setattr(face, name, _checked_function(member))
    return face


def _checked_function(function: Callable[..., Any]) -> Callable[..., Any]:
    known: list[tuple[dict[str, Kinds], list[str]]] = []

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not known:
            known.append(_kinds_of(function))
        kinds, places = known[0]
        values = list(args)
        for at, value in enumerate(args):
            name = places[min(at, len(places) - 1)]  # The last parameter may be variadic.
            values[at] = _fitting(name, value, kinds[name])
        for name, value in kwargs.items():
            kwargs[name] = _fitting(name, value, kinds.get(name, ()))
        with resource_errors():
            return function(*values, **kwargs)

    return call


def _kinds_of(function: Callable[..., Any]) -> tuple[dict[str, Kinds], list[str]]:
    """Return the accepted kinds of each parameter, () for any, and the positional parameters."""
    import inspect

    kinds: dict[str, Kinds] = {}
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        text = str(parameter.annotation).replace("Sequence[int]", "numbers")
        while "[" in text:
            text = _INNERMOST.sub("", text)
        found = tuple(_TEXTS.get(kind, kind) for kind in text.split(" | "))
        kinds[parameter.name] = found if all(kind in _KINDS for kind in found) else ()
    return kinds, [one.name for one in parameters if one.kind is not one.KEYWORD_ONLY]


def _fitting(name: str, value: Any, kinds: Kinds) -> Any:
    """Return an argument if it has one of the kinds."""
    for kind in kinds:
        if _KINDS[kind](value):
            is_odd = kind == "int" and type(value) is not int
            return index(value) if is_odd else value
    if not kinds:
        return value
    words = dict.fromkeys(_WORDS[kind] for kind in kinds if kind != "None")
    expected = "text (names of features)" if name == "features" else " or ".join(words)
    is_plain = isinstance(value, int | str) and len(repr(value)) < 50
    shown = repr(value) if is_plain else type(value).__name__
    raise InvalidTypeError(
        argument=name,
        reason=f"{expected} was expected, not {shown}",
        remedy=_remedy(name, value, kinds),
    )


def _remedy(name: str, value: Any, kinds: Kinds) -> str:
    if isinstance(value, str) and _KINDS["list"] in map(_KINDS.get, kinds):
        return f"Write {name}=[{value!r}]"
    if kinds[:2] == ("int", "str"):
        return "Pass a number of history(), or the name of a pin as text"
    return next((text for of, text in _REMEDIES.items() if of in kinds), "")


def _is_listed(value: Any) -> bool:
    return hasattr(value, "__iter__") and not isinstance(value, str | bytes | Mapping)


def _is_filter(value: Any) -> bool:
    return value is None or isinstance(value, str | list | tuple) or _is_expression(value)


def _is_expression(value: Any) -> bool:
    from txlog.expressions.tree import Expression

    return isinstance(value, Expression)


_INNERMOST = re.compile(r"\[[^\[\]]*\]")
_TEXTS = dict.fromkeys(
    ("SchemaMode", "PartitionMode", "WriteMode", "Missing", "Curve", "OutOfRange", "Literal"),
    "choice",
)
_KINDS: dict[str, Callable[[Any], bool]] = {
    "None": lambda value: value is None,
    "str": lambda value: isinstance(value, str),
    "choice": lambda value: value is None or isinstance(value, str),
    "bool": lambda value: isinstance(value, int) or type(value).__name__.startswith("bool"),
    "int": lambda value: hasattr(value, "__index__") and not isinstance(value, bool),
    "float": lambda value: hasattr(value, "__float__") and not isinstance(value, bool),
    "datetime": lambda value: isinstance(value, datetime),
    "os.PathLike": lambda value: hasattr(value, "__fspath__"),
    "Table": lambda value: isinstance(value, Handle),
    "list": _is_listed,
    "Sequence": _is_listed,
    "numbers": _is_listed,
    "pa.Array": lambda value: hasattr(value, "__arrow_c_stream__"),
    "pa.Schema": lambda value: hasattr(value, "__arrow_c_schema__"),
    "Mapping": lambda value: isinstance(value, Mapping),
    "Updates": lambda value: isinstance(value, Mapping),
    "Where": _is_filter,
    "Filter": _is_filter,
    "Expression": _is_expression,
}
_WORDS = {
    "str": "text",
    "choice": "text",
    "bool": "True or False",
    "int": "a whole number",
    "float": "a number",
    "datetime": "a datetime",
    "os.PathLike": "a path",
    "Table": "a txlog.Table",
    "list": "a list of names",
    "Sequence": "a list of names",
    "numbers": "a list of whole numbers",
    "pa.Array": "an Arrow array",
    "pa.Schema": "a pyarrow.Schema",
    "Mapping": "a mapping",
    "Updates": "a mapping",
    "Where": "a predicate",
    "Filter": "a predicate",
    "Expression": "an expression",
}
_REMEDIES = {
    "Where": "Pass SQL text such as \"a > 1\", or an expression such as col('a') > 1",
    "datetime": "Pass a datetime, text in ISO format, or whole milliseconds since the epoch",
    "os.PathLike": "Pass text or a pathlib.Path",
    "numbers": "Pass a list or an Arrow array",
    "Sequence": "Pass a list, such as one of column names",
    "list": "Pass a list, such as one of column names",
    "Mapping": "Pass a dict",
    "Updates": "Pass a dict of columns and their values",
}
_REMEDIES |= dict.fromkeys(("Filter", "Expression"), _REMEDIES["Where"])


class OpenVersion:
    """A snapshot, and values that are read at their first use.

    One object holds both, so threads that share a table never see files and a snapshot of different
    versions. Two concurrent threads may both read; the results are equal.
    """

    def __init__(self, store: Store, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._store = store
        self._files: FileState | None = None
        self._fragments: FragmentSequence | None = None
        self._whole: FragmentSequence | None = None
        self._made_ms: tuple[int | None] | None = None
        self._plans: dict[tuple[str, ...], ScanPlan] = {}
        self._indexes: tuple[IndexDefinition, ...] | None = None
        self.lookups: dict[tuple[str, ...] | None, Lookup] = {}  # None means the only index.
        self.coverages: dict[tuple[str, ...], Coverage] = {}

    def files(self) -> FileState:
        """Return the live files and tombstones; errors as `load_files`."""
        if self._files is None:
            from txlog.snapshot.live_files import load_files

            self._files = load_files(self._store, self.snapshot)
        return self._files

    def fragments(self) -> FragmentSequence:
        """Return the fragments; for a large log, only with the columns that a `Fragment` needs."""
        if self._fragments is None:
            from txlog.scan.lazy_plan import is_large, plan_snapshot

            if self._files is None and is_large(self.snapshot):
                plan = plan_snapshot(self._store, self.snapshot, lambda: self.files().live)
                self._fragments = plan.files.fragments()
            else:
                self._fragments = self.whole_fragments()
        return self._fragments

    def whole_fragments(self) -> FragmentSequence:
        """Return the fragments with all columns of their files."""
        if self._whole is None:
            from txlog.scan.files import live_sequence

            self._whole = live_sequence(self.snapshot, self.files().live)
        return self._whole

    def plan(self, columns: list[str], where: Expression | None = None) -> ScanPlan:
        """Plan a scan; a plan without a predicate is cached."""
        from txlog.scan.plan import plan_scan

        plan = self._plans.get(tuple(columns)) if where is None else None
        if plan is None:
            files = self.files().live
            plan = plan_scan(self.snapshot, files, columns=columns, where=where).for_arrow()
            if where is None:
                self._plans[tuple(columns)] = plan
        return plan

    def indexes(self) -> tuple[IndexDefinition, ...]:
        """Return the indexes that the version's properties define."""
        if self._indexes is None:
            from txlog.protocol.properties import index_definitions

            found = index_definitions(self.snapshot.metadata.configuration)
            self._indexes = tuple(found.values())
        return self._indexes

    def made_ms(self) -> int | None:
        """Return the time of the version as time travel uses it; None if it is not known."""
        if self._made_ms is None:
            from txlog.snapshot.time_travel import made_ms

            self._made_ms = (made_ms(self._store, self.snapshot),)
        return self._made_ms[0]


class Handle:
    """The base of all verbs of a table: its location and its current version.

    A method that needs several values of the version reads `_open` once.
    """

    _context: Context
    _outcome: Outcome | None
    _lookup_cache: LookupCache | None = None
    _index_cache: str | None = None
    _open: OpenVersion

    @property
    def _snapshot(self) -> Snapshot:
        return self._open.snapshot

    def _stand_at(self, snapshot: Snapshot) -> None:
        self._open = OpenVersion(self._context.store, snapshot)

    def _move(self, snapshot: Snapshot) -> None:
        """Move to a version, unless another thread has moved to a newer one."""
        if snapshot is not self._snapshot and snapshot.version >= self._snapshot.version:
            self._stand_at(snapshot)

    def _latest(self) -> Snapshot:
        from txlog.snapshot.load import refresh

        return refresh(self._context.store, self._snapshot)

    def _run(
        self, operation: Operation, txn: AnyAppVersion | None, user_metadata: UserMetadata | None
    ) -> Outcome:
        """Execute an operation on the latest version, and move to the new version."""
        from txlog.commit.operation import execute

        return self._finish(
            execute(operation, self._latest(), txn=txn, user_metadata=user_metadata)
        )

    def _finish(self, done: Done) -> Outcome:
        """Move to the version after an operation, and write a checkpoint if one is due."""
        self._move(done.snapshot)
        self._outcome = done.outcome
        if done.is_checkpoint_due or done.wants_log_files:
            from txlog.verbs.checkpoint import checkpoint_if_due

            checkpoint_if_due(self._context, done)
        if done.outcome and any(map(_is_index, done.snapshot.metadata.configuration)):
            from txlog.lookup.indexes import SegmentCache
            from txlog.verbs.indexes import merge_if_due

            cache = self._lookup_cache
            segments = SegmentCache(self._index_cache) if cache is None else cache.segments
            merge_if_due(self._context, done.snapshot, segments)
        return done.outcome


def _is_index(name: str) -> bool:
    return name.startswith("txlog.index.")
