"""Make training sets in the background: claim, build, record; and copy their parts.

A worker claims a job for some time, and a thread renews the claim during the work. If the worker
dies, the claim ends, and another worker makes the set again, in another folder. Rules:
spec/datasets.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from txlog import Table
from txlog.base.effects import REAL
from txlog.base.errors import (
    DataFileError,
    InvalidInputError,
    NotFoundError,
    TxlogError,
    os_errors,
)
from txlog.base.threads import Call, Workers
from txlog.base.thresholds import Threshold
from txlog.extend import Store, open_store, threads_for
from txlog.training.datasets.aside import open_object, place_of
from txlog.training.datasets.events import printable
from txlog.training.datasets.ingest import discard_tree
from txlog.training.datasets.lease import GONE, TakenOverError, renewed
from txlog.training.datasets.limits import DEFAULT_LIMITS, fault_of_path
from txlog.training.datasets.program import ProgramError
from txlog.training.datasets.training_files import PickedRows, SetFiles
from txlog.training.datasets.types import type_of
from txlog.training.datasets.values import WHERE, Failure, Part

if TYPE_CHECKING:
    import pyarrow as pa

    from txlog.base.threads import Engine
    from txlog.training.datasets.ledger import Ledger
    from txlog.training.datasets.values import Job

_CHUNK_BYTES: Threshold = 8 << 20


class Runner(Protocol):
    """The interface of runners, which make training sets."""

    def submit(self, work: Callable[[], None]) -> None:
        """Do a piece of work, now or later."""
        ...


class InlineRunner:
    """A runner that does the work at once, in the caller's thread."""

    def submit(self, work: Callable[[], None]) -> None:
        """Do the work."""
        work()


class ThreadRunner:
    """A runner with threads of this process. Before the process ends, it does all submitted work.

    Parameters
    ----------
    workers
        The number of training sets that are made at a time.
    """

    def __init__(self, workers: int = 2) -> None:
        self._workers = Workers(workers)
        self._lock = Lock()
        self._waiting: list[Call[None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        """Let a thread do the work when one is free; do it at once if no thread can be started."""
        with self._lock:
            if not self._workers.is_here:  # A forked process has no threads.
                self._workers, self._waiting = Workers(self._workers.count), []
            call = self._workers.start(_call, work)
            self._waiting = [one for one in self._waiting if not one.is_done]
            self._waiting.append(call)
        if not call.is_started:
            call.result()

    def wait(self) -> None:
        """Wait until all submitted work is done."""
        with self._lock:
            waiting = list(self._waiting)
        for one in waiting:
            one.result()


def _call(work: Callable[[], None]) -> None:
    work()


# Jobs ------------------------------------------------------------------------------------------


def submit(job: Job, ledger: Ledger, runner: Runner, engine: Engine | None = None) -> None:
    """Let a runner make a training set, unless it is made or being made.

    Parameters
    ----------
    engine
        The engine for work over many files: threads, or Spark's executors.
    """
    runner.submit(partial(make, job, ledger, engine))


def make(job: Job, ledger: Ledger, engine: Engine | None = None) -> None:
    """Make a training set, and record in the ledger that it is ready, or why it cannot be made.

    It raises only errors that end the process and errors of the ledger itself: then the lease ends,
    and another worker makes the set.
    """
    worker = f"{ledger.by}/{REAL.uuid()[:8]}"
    claim = None
    with suppress(NotFoundError):  # The data set or the training set was purged meanwhile.
        claim = ledger.claim(job.dataset_id, job.asked.version_hash, worker)
    if claim is None:
        return
    home = open_store(job.files_uri.rpartition("/")[0], job.storage_options)
    folder = open_store(f"{job.folder}/{claim.attempt}", job.storage_options)
    try:
        with renewed(claim, ledger.renew, lambda: ledger.now_ms) as require:
            try:
                parts, statistics = _built(job, home, folder, engine, require)
            except TakenOverError:
                raise
            except Exception as error:
                require()
                ledger.failed(claim, failure_of(error))
                discard_tree(folder)
                return
            ledger.ready(claim, parts, statistics)
    except (TakenOverError, *GONE):
        discard_tree(folder)  # Another attempt is current, or the set was purged.


def failure_of(error: Exception) -> Failure:
    """Return an error for the ledger, without the server's paths."""
    if isinstance(error, ProgramError):
        return Failure("program", printable(str(error)))
    if isinstance(error, TxlogError):
        text = ". ".join(text for text in (error.reason, error.remedy) if text)
        return Failure(error.code, printable(text))
    return Failure("failed", f"an unexpected {type(error).__name__}")


def _built(
    job: Job, home: Store, folder: Store, engine: Engine | None, check: Callable[[], None]
) -> tuple[list[Part], dict[str, int]]:
    """Make the parts of a training set in a folder, and return them with the statistics."""
    kind = type_of(job.type)
    engine = engine or threads_for(home)
    table = Table(
        job.table_uri, job.table_version, storage_options=job.storage_options, engine=engine
    )
    options = dict(job.asked.options)
    rows = PickedRows(table, job.asked.commit_ids, home, options.pop(WHERE, None))
    below = folder.root.removeprefix(home.root).strip("/")
    out = SetFiles(folder, below, job.asked.form, check)
    statistics = kind.build(rows, out, options)
    return out.parts, dict(statistics)


# Copying parts ---------------------------------------------------------------------------------


def download(
    parts: Sequence[Part],
    folder: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Copy parts into a folder, under their names, and return the paths of the files.

    An existing file with the same bytes stays. Each file is complete when it has its name.

    Parameters
    ----------
    parts
        The parts with absolute URIs.

    Raises
    ------
    DataFileError
        The bytes of a part have changed since it was made. Then the file does not exist.
    """
    return [fetch_file(one, folder, partial(opened_part, one, storage_options)) for one in parts]


def unpack(
    batches: Iterable[pa.RecordBatch],
    folder: str | os.PathLike[str],
    opened: Callable[[Part], Any],
) -> list[str]:
    """Write the files that are rows of GENERIC into a folder; errors as for `download`.

    If several files have the same name, the last one is written.

    Parameters
    ----------
    opened
        A function that opens a content in `files/`. Its `uri` is relative to the folder's root.
    """
    written: dict[str, None] = {}
    columns = ("name", "uri", "sha256", "size")
    for batch in batches:
        rows = zip(*(batch[name].to_pylist() for name in columns), strict=True)
        for content, (name, uri, digest, size) in zip(batch["content"], rows, strict=True):
            part = Part(name, uri or name, size, None, digest)
            within = partial(BytesIO, content.as_buffer()) if uri is None else None
            written[fetch_file(part, folder, within or partial(opened, part))] = None
    return [*written]


def fetch_file(part: Part, folder: str | os.PathLike[str], opened: Callable[[], Any]) -> str:
    """Write a part below a folder, unless it exists, and return its path.

    Parameters
    ----------
    opened
        A function that opens the bytes as a context manager whose value has `read`. Errors as for
        `download`.
    """
    if wrong := fault_of_path(part.name, DEFAULT_LIMITS):
        raise InvalidInputError(argument="parts", reason=f"the name {part.name[:100]!r} {wrong}")
    path = Path(folder) / part.name
    with os_errors("write", str(path)):
        if not path.is_file() or _digest(path) != part.sha256:
            _fetch(part, path, opened)
    return str(path)


def _fetch(part: Part, path: Path, opened: Callable[[], Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{REAL.uuid()}")
    digest = sha256()
    try:
        with opened() as source, staged.open("wb") as target:
            while data := source.read(_CHUNK_BYTES):
                digest.update(data)
                target.write(data)
        if digest.hexdigest() != part.sha256:
            raise DataFileError(
                path=part.uri,
                reason=f"the part {part.name} has other bytes than when it was made: SHA-256 "
                f"{digest.hexdigest()}, {part.sha256} was expected",
                remedy="Copy the folder again from its original place, or restore it from a backup",
            )
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)


def opened_part(part: Part, storage_options: Mapping[str, Any] | None) -> Any:
    """Return the bytes of a part, opened for reading."""
    place, name = place_of(part.uri)
    return open_object(open_store(place, storage_options), name)


def _digest(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while data := file.read(_CHUNK_BYTES):
            digest.update(data)
    return digest.hexdigest()
