"""Lists of files that Spark reads instead of listing folders.

The form is that of the log of Spark's own file sink: Spark takes paths and sizes from it, and
looks at no file before a task reads it. Rule: spec/spark.md, SPK-2.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from txlog.errors import InvalidInputError, StoreError
from txlog.store.base import file_path, is_file_uri, scheme_of, without_secrets

_REST = (
    ',"isDir":false,"modificationTime":0,"blockReplication":1,"blockSize":134217728,"action":"add"}'
)


def manifest_text(uris: pa.Array, sizes: pa.Array) -> str:
    """Return the manifest of files, by their URIs (percent-encoded) and sizes in bytes."""
    lines = pc.binary_join_element_wise(
        '{"path":"', uris, '","size":', pc.cast(sizes, pa.string()), _REST, ""
    )
    return "\n".join(["v1", *lines.to_pylist()])


def write_manifest(text: str, folder: str | None) -> str:
    """Write a manifest, once, and return the path of the folder that Spark is to read.

    Parameters
    ----------
    folder
        Where manifests are kept. None: in a temporary folder, until this process ends.

    Raises
    ------
    InvalidInputError
        The folder is no local one.
    StoreError
        It cannot be written.
    """
    if folder is not None and scheme_of(folder) not in (None, "file"):
        raise InvalidInputError(
            argument="manifests",
            reason=f"{without_secrets(folder)!r} is no local folder",
            remedy="Name a folder that this process can write to and Spark's driver can see",
        )
    if folder is not None and is_file_uri(folder):
        folder = file_path(folder, decode=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    try:
        home = Path(folder).absolute() if folder is not None else _temporary()
        found = home / digest
        place = found / "_spark_metadata"
        if not (place / "0").exists():
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=home, prefix="_", delete=False, encoding="utf-8"
            ) as file:
                file.write(text)
            Path(file.name).chmod(0o644)
            Path(file.name).replace(place / "0")  # Whole at once: another may be reading it.
    except OSError as error:
        raise StoreError(
            path=folder or tempfile.gettempdir(),
            operation="write",
            reason=f"a list of files cannot be written: {error}",
        ) from error
    return str(found)


@cache
def _temporary() -> Path:
    made = Path(tempfile.mkdtemp(prefix="txlog-"))
    made.chmod(0o755)  # A Spark server may be another user.
    atexit.register(_remove, made, os.getpid())
    return made


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # Not in a forked child.
        shutil.rmtree(folder, ignore_errors=True)
