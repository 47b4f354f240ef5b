"""Programs of steps: rows go in and come out as Arrow streams, and each run is a process.

A command reads the rows from its standard input, and writes its own to the file that the
environment variable `TXLOG_OUTPUT` names. Python functions are called by `step_main`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa

from txlog.base.errors import InvalidInputError, InvalidTypeError
from txlog.training.datasets.limits import DEFAULT_LIMITS, fault_of_path
from txlog.training.datasets.values import Code

OUTPUT = "TXLOG_OUTPUT"
MAIN = "txlog.training.datasets.step_main"

_PYTHON = re.compile(r"(?P<file>[^:]+\.py)(:\w+)?|[\w.]+:\w+")
_LOG_BYTES = 10_000
_TOLD_LETTERS = 1_000  # Of what a program printed, in the ledger.
_LOOK_S = 0.5
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # Of an Arrow stream.


def required_run(run: object) -> str | tuple[str, ...]:
    """Return the program of a step: a Python file or function, or a command as a tuple.

    Raises
    ------
    InvalidTypeError, InvalidInputError
        It is neither.
    """
    if isinstance(run, str):
        found = _PYTHON.fullmatch(run)
        if found is None:
            raise InvalidInputError(
                argument="run",
                reason=f"{run[:200]!r} is no Python file or function",
                remedy="Write clean.py, clean.py:function or module:function; a command is a list "
                "of texts",
            )
        file = found["file"]
        if file is not None and (wrong := fault_of_path(file, DEFAULT_LIMITS)):
            raise InvalidInputError(
                argument="run",
                reason=f"the path {file[:200]!r} {wrong}",
                remedy="Give the path from the folder of the programs",
            )
        return run
    if isinstance(run, Sequence) and run and all(isinstance(one, str) and one for one in run):
        return tuple(run)
    raise InvalidTypeError(
        argument="run",
        reason="a Python file or function as text, or a command as a list of texts, was expected, "
        f"not {type(run).__name__}",
    )


class ProgramError(Exception):
    """A program failed. The text says why, and the end of what it printed."""


class Program:
    """The program of a step, for one run.

    Parameters
    ----------
    folder
        The folder of the programs, in which it runs.
    scratch
        A folder for its output and its log.
    timeout_s
        After this time it is killed.
    require
        Raises if another worker took the run over. It is called often; then the program is killed.
    """

    def __init__(
        self,
        run: str | tuple[str, ...],
        folder: Path,
        scratch: Path,
        timeout_s: float | None,
        require: Callable[[], None],
    ) -> None:
        self._run = run
        self._folder = folder
        self._log = scratch / "log"
        self._output = scratch / "rows.arrow"
        self._timeout_s = timeout_s
        self._require = require

    def code(self) -> Code:
        """Return the name of the program, with the digest of its file below the folder."""
        if isinstance(self._run, str):
            place = self._run.partition(":")[0]
            module = place.replace(".", "/")
            names = [place] if place.endswith(".py") else [f"{module}.py", f"{module}/__init__.py"]
            name = self._run
        else:
            names, name = list(reversed(self._run)), " ".join(self._run)
        for one in names:
            with suppress(OSError, ValueError):  # A word of a command need not be a path.
                path = (self._folder / one).resolve()
                if path.is_relative_to(self._folder.resolve()) and path.is_file():
                    return Code(name, sha256(path.read_bytes()).hexdigest()[:16])
        return Code(name)

    def log(self) -> str:
        """Return the end of what it printed."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - _LOG_BYTES))
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def run(self, rows: pa.RecordBatchReader, facts: Mapping[str, str]) -> pa.RecordBatchReader:
        """Run it with rows, and return the rows that it wrote.

        Parameters
        ----------
        facts
            Environment variables for it.

        Raises
        ------
        ProgramError
            It failed, ran too long, or wrote no Arrow stream.
        TakenOverError
            As `require` raises it.
        """
        if isinstance(self._run, str):
            command = [sys.executable, "-P", "-m", MAIN, self._run]
        else:
            command = [*self._run]
        environment = {**os.environ, **facts, OUTPUT: str(self._output)}
        with self._log.open("wb") as log:
            try:
                process = subprocess.Popen(
                    command,
                    cwd=self._folder,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # So that its children end with it.
                )
            except OSError as error:
                reason = error.strerror or type(error).__name__
                raise ProgramError(f"{command[0]!r} cannot be started: {reason}") from error
            self._follow(process, rows)
        if not self._output.is_file():
            raise self._failed(f"wrote no file; {OUTPUT} has its path")
        rows = pa.memory_map(str(self._output))
        try:
            pa.ipc.open_stream(rows)
        except pa.ArrowException as error:
            raise self._failed(f"wrote no Arrow stream: {error}") from error
        # A stream without its end looks like a shorter one.
        rows.seek(max(0, rows.size() - len(_END)))
        is_whole = rows.read() == _END
        rows.seek(0)
        if not is_whole:
            raise self._failed("did not end its Arrow stream; close the writer")
        return pa.ipc.open_stream(rows)

    def _follow(self, process: subprocess.Popen[bytes], rows: pa.RecordBatchReader) -> None:
        """Feed a process with rows, and wait for its end.

        A thread ends it when its time is over or another worker has taken over, because a write to
        its input may wait for ever.
        """
        over = Event()
        why: list[BaseException] = []

        def watch() -> None:
            left = self._timeout_s
            while not over.wait(_LOOK_S if left is None else min(left, _LOOK_S)):
                try:
                    self._require()
                except BaseException as error:  # Raised again below.
                    why.append(error)
                if left is not None and (left := left - _LOOK_S) <= 0:
                    why.append(self._failed(f"ran longer than {self._timeout_s} seconds"))
                if why:
                    _end(process)
                    return

        thread = Thread(target=watch, name="txlog-step", daemon=True)
        try:
            thread.start()
            self._feed(process, rows)
            process.wait()
        finally:
            over.set()
            _end(process)
            process.wait()
            thread.join()
        if why:
            raise why[0]
        if process.returncode < 0:
            raise self._failed(f"was killed by the signal {-process.returncode}")
        if process.returncode:
            raise self._failed(f"ended with the exit code {process.returncode}")

    def _feed(self, process: subprocess.Popen[bytes], rows: pa.RecordBatchReader) -> None:
        assert process.stdin is not None
        batches = iter(rows)
        sink = pa.PythonFile(process.stdin, "w")
        with suppress(BrokenPipeError):  # It need not read all rows. Its exit code tells.
            try:
                with pa.ipc.new_stream(sink, rows.schema) as stream:
                    for batch in batches:
                        stream.write_batch(batch)
            finally:
                process.stdin.close()

    def _failed(self, why: str) -> ProgramError:
        said = self.log().strip()[-_TOLD_LETTERS:]
        return ProgramError(f"the program {why}" + (f": {said}" if said else ""))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
