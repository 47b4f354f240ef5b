"""Observation of txlog's work: events of `logging`, spans and metrics of OpenTelemetry.

Neither package is imported here. If a program has not imported `logging` or `opentelemetry`, there
is no handler or no provider: then a verb only looks for both in `sys.modules`. No event contains
rows, predicates, user metadata, passwords or error messages. An error of an observer never fails a
verb; it goes to stderr. docs/guides/observe.md lists all events.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextvars import ContextVar, Token
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar

from txlog.base.arrow import pc
from txlog.base.effects import REAL
from txlog.base.errors import resource_errors
from txlog.base.texts import without_secrets
from txlog.base.threads import PROGRESS, doing
from txlog.base.version import __version__

if TYPE_CHECKING:
    import logging

    import pyarrow as pa
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.trace import Span

Area = Literal["commit", "scan", "open", "maintenance"]
Facts: TypeAlias = "Mapping[str, Any] | Callable[[], Mapping[str, Any]]"

EVENTS = {
    "started": 10,
    "planned": 10,
    "opened": 10,
    "read": 10,
    "conflict": 20,
    "retried": 20,
    "committed": 20,
    "skipped": 20,
    "checkpointed": 20,
    "removed": 20,
    "failed": 30,
}
"""The events, with their levels of `logging`."""

_NONE: Mapping[str, Any] = {}

COUNTERS = {
    ("committed", None): ("txlog.commits", "{commit}", "Versions that were made."),
    ("retried", None): ("txlog.retries", "{retry}", "Attempts at a commit after its first one."),
    ("conflict", None): ("txlog.conflicts", "{conflict}", "Commits that a winner forbade."),
    ("skipped", None): ("txlog.skips", "{operation}", "Operations that committed nothing."),
    ("committed", "added_files"): ("txlog.added.files", "{file}", "Data files that were added."),
    ("committed", "added_bytes"): ("txlog.added.bytes", "By", "Bytes of added data files."),
    ("committed", "added_rows"): ("txlog.added.rows", "{row}", "Rows of added data files."),
    ("committed", "removed_files"): ("txlog.removed.files", "{file}", "Files that were removed."),
    ("planned", "files"): ("txlog.read.files", "{file}", "Data files that scans had to read."),
    ("planned", "bytes"): ("txlog.read.bytes", "By", "Sizes of those data files."),
}
"""Counters by event and by the fact that they add up; None: they count the event."""

_SECONDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10]  # A name of the semantic conventions.
_ROWS = [1.0, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000]
HISTOGRAMS: dict[str, tuple[str, str, str, list[float]]] = {
    "duration": ("db.client.operation.duration", "s", "How long operations took.", _SECONDS),
    "rows": ("db.client.response.returned_rows", "{row}", "Rows that reads returned.", _ROWS),
}

_current: ContextVar[Observation | None] = ContextVar("txlog.observation", default=None)


def short_name(root: str) -> str:
    """Return the last part of a table's URI, for people."""
    return without_secrets(root).partition("?")[0].rstrip("/").rpartition("/")[2]


class Observation:
    """One operation on one table, from its beginning to its end."""

    _logger: logging.Logger | None = None
    _span: Span | None = None
    _meters: _Meters | None = None
    _attached: Any = None
    _token: Token[Observation | None] | None = None
    _doing: Token[str]
    _attempts = 1

    def __init__(self, name: str, root: str, area: Area) -> None:
        self.name = name
        self.table = without_secrets(root)
        self._short = short_name(root)
        self._began = REAL.monotonic_s()
        self._logger = _logger_of(area)
        self._attributes = {
            "db.system.name": "delta",
            "db.operation.name": name,
            "db.collection.name": self.table,
        }
        self._meters = _meters()

    def begin(self, *, attach: bool) -> None:
        """Start the span. With `attach` it is the current span, the parent of later ones."""
        trace = sys.modules.get("opentelemetry.trace")
        if trace is None:
            return
        try:
            self._span = trace.get_tracer("txlog", __version__).start_span(
                f"{self.name} {self._short}",
                kind=trace.SpanKind.CLIENT,
                attributes=self._attributes,
            )
            if attach:
                from opentelemetry import context

                self._attached = context.attach(trace.set_span_in_context(self._span))
        except Exception as error:
            _complain(error)

    def end(self, error: BaseException | None = None) -> None:
        """End the span, and record its duration and its error, if there is one."""
        attributes = self._attributes
        if error is not None:
            code = getattr(error, "code", None)
            code = code if isinstance(code, str) else type(error).__qualname__
            self.note("failed", {"error": code})
            attributes = {**attributes, "error.type": code}
        try:
            if self._meters is not None:
                self._meters.record("duration", self._seconds(), attributes)
            if self._span is not None:
                if error is not None:
                    from opentelemetry.trace import StatusCode

                    self._span.set_attribute("error.type", code)
                    self._span.set_status(StatusCode.ERROR)
                self._span.end()
            if self._attached is not None:
                from opentelemetry import context

                context.detach(self._attached)
        except Exception as broken:
            _complain(broken)

    def note(self, event: str, facts: Facts = _NONE) -> None:
        """Report an event with its facts, or with a function that computes expensive facts."""
        try:
            self._note(event, facts)
        except Exception as error:
            _complain(error)

    def _note(self, event: str, facts: Facts) -> None:
        level = EVENTS[event]
        self._attempts += event == "retried"
        logs = self._logger is not None and self._logger.isEnabledFor(level)
        if not logs and self._span is None and self._meters is None:
            return
        found = dict(facts() if callable(facts) else facts)
        found = {name: value for name, value in found.items() if value is not None}
        if event == "retried":
            found["attempt"] = self._attempts
        if event == "committed":
            found["attempts"] = self._attempts
        if event not in _BEGINNINGS:
            found["duration_s"] = round(self._seconds(), 6)
        if logs and self._logger is not None:
            _log(self._logger, level, event, self.name, self.table, found)
        if self._span is not None and self._span.is_recording():
            attributes = {f"txlog.{name}": value for name, value in found.items()}
            self._span.add_event(event, attributes)
            if event not in ("failed", "conflict"):
                self._span.set_attributes(attributes)
            if event == "read" and "rows" in found:
                self._span.set_attribute("db.response.returned_rows", found["rows"])
        if self._meters is not None:
            self._meters.count(event, found, self._attributes)

    def _seconds(self) -> float:
        return REAL.monotonic_s() - self._began

    def __enter__(self) -> Observation:
        self.begin(attach=True)
        self._token = _current.set(self)
        self._doing = doing.set(f"{self.name} {self._short}")
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._token is not None:
            doing.reset(self._doing)
            _current.reset(self._token)
        self.end(error)


_BEGINNINGS = {"started", "planned", "conflict", "retried"}  # The other events end something.


class _Unobserved:
    """An observation without observers: it does nothing."""

    def note(self, event: str, facts: Facts = _NONE) -> None:
        """Do nothing."""

    def begin(self, *, attach: bool) -> None:
        """Do nothing."""

    def end(self, error: BaseException | None = None) -> None:
        """Do nothing."""

    def __enter__(self) -> _Unobserved:
        return self

    def __exit__(self, *error: object) -> None:
        return None


UNOBSERVED = _Unobserved()


def observed(
    name: str, root: str, area: Area = "commit", *, within: bool = False
) -> Observation | _Unobserved:
    """Return the observation of an operation, for a `with`, or for `begin` and `end`.

    Parameters
    ----------
    name
        The operation's name in the commit; or OPEN, SCAN, …
    root
        The table; secrets in it are omitted.
    within
        Whether to continue the current observation of the same table, if there is one.
    """
    if not is_observed(area):
        return UNOBSERVED
    outer, found = _current.get(), Observation(name, root, area)
    if outer is not None and outer.table == found.table and (within or outer.name == name):
        return UNOBSERVED
    return found


def note(event: str, facts: Facts = _NONE) -> None:
    """Report an event of the currently observed operation, if there is one."""
    current = _current.get()
    if current is not None:
        current.note(event, facts)


def is_observed(area: Area) -> bool:
    """Return whether there may be an observer: a bar, OpenTelemetry, or a logger for warnings."""
    modules = sys.modules
    if (
        PROGRESS.get() is not None
        or "opentelemetry.trace" in modules
        or "opentelemetry.metrics" in modules
    ):
        return True
    return _logger_of(area) is not None


P = ParamSpec("P")
Result = TypeVar("Result")


def reading(name: str) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Observe a reading method, whose result is rows or a number of rows.

    The method's object has a `store`, or a `_context` that has one. If memory or threads are
    lacking, an `OutOfMemoryError` is raised.
    """

    def decorate(method: Callable[P, Result]) -> Callable[P, Result]:
        @wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            with resource_errors():
                if not is_observed("scan"):
                    return method(*args, **kwargs)
                itself: Any = args[0]
                store = getattr(itself, "_context", itself).store
                with observed(name, store.root, "scan") as seen:
                    result = method(*args, **kwargs)
                    seen.note("read", {"rows": _rows_of(result)})
                return result

        return call

    return decorate


def creating(name: str) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Observe a function of a context that creates a table and writes its files."""

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            context: Any = args[0]
            with resource_errors(), observed(name, context.store.root):
                return function(*args, **kwargs)

        return call

    return decorate


def removing(name: str) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Observe a function of a context and a snapshot that deletes files, except in a dry run.

    `dry_run` is an argument of the function, or an attribute of one.

    The function's result is a table with a decision for each file, or has such a table as
    `decided`.
    """

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            asked = kwargs.get("dry_run") or any(getattr(one, "dry_run", False) for one in args)
            with resource_errors():
                if asked or not is_observed("maintenance"):
                    return function(*args, **kwargs)
                snapshot: Any = args[1]
                with observed(name, snapshot.root, "maintenance") as seen:
                    result = function(*args, **kwargs)
                    seen.note("removed", lambda: _removed(getattr(result, "decided", result)))
                return result

        return call

    return decorate


def _removed(decided: pa.Table) -> dict[str, int]:
    gone = decided.filter(pc.equal(decided["decision"], "delete"))
    return {"files": gone.num_rows, "bytes": pc.sum(gone["bytes"]).as_py() or 0}


Batch = TypeVar("Batch")


def observed_batches(
    name: str, root: str, batches: Generator[Batch, None, None], facts: Facts
) -> Iterator[Batch]:
    """Yield batches, and report the number of read rows when the reader stops.

    The span is not the current one, because the reader's work between batches is not part of the
    scan. `facts` are the facts of the plan.
    """
    if not is_observed("scan"):
        yield from batches
        return
    seen = observed(name, root, "scan")
    rows = 0
    failure: BaseException | None = None
    seen.begin(attach=False)
    try:
        seen.note("planned", facts)
        for batch in batches:
            rows += _rows_of(batch) or 0
            yield batch
    except Exception as error:
        failure = error
        raise
    finally:
        batches.close()
        if failure is None:
            seen.note("read", {"rows": rows})
        seen.end(failure)


def _rows_of(result: Any) -> int | None:
    if isinstance(result, int):
        return result
    for name in ("num_rows", "height"):
        if hasattr(result, name):
            return int(getattr(result, name))
    return len(result) if hasattr(result, "__len__") else None


_LOGGERS: dict[Area, logging.Logger] = {}


def _logger_of(area: Area) -> logging.Logger | None:
    """Return the logger of an area, if `logging` is imported and the logger handles warnings."""
    loaded: Any = sys.modules.get("logging")
    if not hasattr(loaded, "getLogger"):  # It is not imported, or only partly.
        return None
    logger = _LOGGERS.get(area) or _LOGGERS.setdefault(area, loaded.getLogger(f"txlog.{area}"))
    # Without a handler `logging` itself would print warnings.
    return logger if logger.isEnabledFor(EVENTS["failed"]) and logger.hasHandlers() else None


def _log(
    logger: logging.Logger, level: int, event: str, name: str, table: str, facts: dict[str, Any]
) -> None:
    extra = {f"txlog_{fact}": value for fact, value in facts.items()}
    extra |= {"txlog_event": event, "txlog_operation": name, "txlog_table": table}
    listed = ", ".join(f"{fact}={value}" for fact, value in facts.items())
    logger.log(level, "%s %s: %s%s", name, table, event, f" ({listed})" * bool(listed), extra=extra)


class _Meters:
    """The instruments of OpenTelemetry, each made at its first use."""

    def __init__(self) -> None:
        from opentelemetry import metrics

        self._meter = metrics.get_meter("txlog", __version__)
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    def count(self, event: str, facts: Mapping[str, Any], attributes: Mapping[str, str]) -> None:
        """Add an event and its facts to their counters."""
        for (counted, fact), (name, unit, text) in COUNTERS.items():
            amount = 1 if fact is None else facts.get(fact)
            if counted != event or not amount:
                continue
            if name not in self._counters:
                self._counters[name] = self._meter.create_counter(name, unit, text)
            rule = {"txlog.rule": facts["rule"]} if event == "conflict" else {}
            self._counters[name].add(amount, {**attributes, **rule})
        if event == "read" and "rows" in facts:
            self.record("rows", facts["rows"], attributes)

    def record(self, what: str, amount: float, attributes: Mapping[str, str]) -> None:
        """Record an amount in a histogram."""
        if what not in self._histograms:
            name, unit, text, edges = HISTOGRAMS[what]
            self._histograms[what] = self._meter.create_histogram(
                name, unit, text, explicit_bucket_boundaries_advisory=edges
            )
        self._histograms[what].record(amount, attributes)


_made: list[_Meters] = []


def _meters() -> _Meters | None:
    """Return the instruments, if OpenTelemetry's metrics are imported."""
    if "opentelemetry.metrics" not in sys.modules:
        return None
    if not _made:
        _made.append(_Meters())
    return _made[0]


def _complain(error: Exception) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"txlog: the observation of an operation failed: {error!r}\n")
