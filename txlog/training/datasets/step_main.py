"""Call a function of a step: `python -m txlog.training.datasets.step_main clean.py:function`.

Rows come as an Arrow stream on the standard input; those that the function returns go to the file
that `TXLOG_OUTPUT` names. A file without a function has the function `run`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from txlog.extend import as_reader
from txlog.training.datasets.program import OUTPUT


def main(target: str) -> None:
    """Call the function with a `pyarrow.RecordBatchReader`; it returns Arrow data, or None."""
    made = function_of(target)(pa.ipc.open_stream(sys.stdin.buffer))
    reader = pa.table({}).to_reader() if made is None else as_reader(made, "what the step returns")
    with pa.OSFile(os.environ[OUTPUT], "wb") as sink, pa.ipc.new_stream(sink, reader.schema) as out:
        for batch in reader:
            out.write_batch(batch)


def function_of(target: str) -> Callable[[Any], Any]:
    """Return a function of a file below the current folder, or of a module."""
    place, _, name = target.partition(":")
    if not place.endswith(".py"):
        found = getattr(importlib.import_module(place), name)
    else:
        name_of_file = Path(place).stem
        if name_of_file in sys.stdlib_module_names | sys.modules.keys():
            name_of_file = f"step_{name_of_file}"  # It must not stand in another module's place.
        spec = importlib.util.spec_from_file_location(name_of_file, place)
        if spec is None or spec.loader is None or not Path(place).is_file():
            sys.exit(f"there is no file {place!r} in {Path.cwd()}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # Dataclasses and pickles look for it there.
        spec.loader.exec_module(module)
        found = getattr(module, name or "run", None)
        if found is None:
            sys.exit(f"{place} has no function {name or 'run'!r}")
    if not callable(found):
        sys.exit(f"{target!r} is no function")
    return found  # type: ignore[no-any-return]  # A user's function.


if __name__ == "__main__":
    sys.path.append(str(Path.cwd()))  # Last, so that no file there hides a module of Python.
    main(sys.argv[1])
