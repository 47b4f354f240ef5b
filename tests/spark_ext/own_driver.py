"""Run programs of this folder as separate driver processes, with all that they start."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import txlog

HERE = Path(__file__).parent
HOME = Path(txlog.__file__).parents[1]
NEW_PORT = {"SPARK_TESTING": "1"}  # A server of Spark Connect takes a port that is free.


def run_driver(
    program: str | Path,
    *arguments: object,
    env: Mapping[str, str] | None = None,
    path: Path | None = None,
    returns: int = 0,
    timeout_s: float = 600,
) -> subprocess.CompletedProcess[str]:
    """Run a driver to its end, which must be the one that is expected.

    Parameters
    ----------
    program
        A file, or the name of one in this folder.
    arguments
        What it is given, as text.
    env
        More of its environment.
    path
        A folder to look for modules in before any other.
    returns
        With which code it must end, or minus the signal that must kill it. A killed one has a
        session of processes of its own, which die with it.
    timeout_s
        How long it may take, in seconds.
    """
    folders = [*([path] if path else []), HOME, *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, str(HERE / program), *map(str, arguments)],
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            **(env or {}),
        },
        start_new_session=returns < 0,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == returns, done.stderr[-5000:]
    return done
