"""GENERIC: files of any kind, kept and given back as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256

import pyarrow as pa

from txlog.base.arrow import pc
from txlog.base.errors import InvalidInputError, SchemaMismatchError
from txlog.training.datasets.limits import Limits, fault_of_path
from txlog.training.datasets.sources import Source, SourceFile
from txlog.training.datasets.types.base import (
    ObjectFiles,
    Parts,
    Rows,
    content_batches,
    require_options,
)
from txlog.training.datasets.types.text_intent import column_of

_PARTS = 10_000  # The largest number of files of a set that can be separate parts.


class Generic:
    """Files under their names: one file, or all files of a folder or prefix.

    The type also accepts Arrow data with the columns `name` and `content`. In the form `parquet` a
    training set is a table of the files. In the form `csv` each file is a part, with the same bytes
    under the same name. If commits have different files with one name, the option `names` decides:
    `unique` (the default) raises an error, `last` uses the file of the last commit.
    """

    name = "GENERIC"
    version = 1
    aliases: tuple[str, ...] = ()
    as_files = True  # A folder with a table in it is read as files.
    ingestion = pa.schema(
        [
            pa.field("name", pa.string(), nullable=False),
            ("content", pa.binary()),
            ("uri", pa.string()),
            pa.field("sha256", pa.string(), nullable=False),
            pa.field("size", pa.int64(), nullable=False),
        ]
    )
    training: Mapping[str, pa.Schema | None] = {"files": ingestion}

    def read(self, source: Source, limits: Limits, files: ObjectFiles) -> Iterator[pa.RecordBatch]:
        """Yield files, ordered by name."""
        rows = (
            _of_data(source, limits, files)
            if source.data is not None
            else (_of_file(file, limits, files) for file in source.files)
        )
        yield from content_batches(rows, self.ingestion)

    def statistics(self) -> FileCounts:
        """Return the counts of a commit without rows."""
        return FileCounts()

    def build(self, rows: Rows, out: Parts, options: Mapping[str, str]) -> dict[str, int]:
        """Write the files as a table, or each file as a part."""
        require_options(options, {"names": ("unique", "last")})
        chosen = _chosen(rows, options.get("names", "unique"))
        if out.form == "csv":
            _write_files(rows, out, chosen)
        else:
            out.write("files", rows, _as_it_is)
        sizes = sum(size for _, size in chosen.values())
        return {"numFiles": len(chosen), "numBytes": sizes}


class FileCounts:
    """The number of files of a commit, and the sum of their sizes."""

    def __init__(self) -> None:
        self._files = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count more rows."""
        self._files += batch.num_rows
        self._bytes += pc.sum(batch["size"]).as_py() or 0

    def result(self) -> dict[str, int]:
        """Return `numFiles` and `numBytes`."""
        return {"numFiles": self._files, "numBytes": self._bytes}


def _as_it_is(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


# Read ------------------------------------------------------------------------------------------


def _of_file(file: SourceFile, limits: Limits, files: ObjectFiles) -> dict[str, object]:
    """Return the row of a file; a large file is copied, chunk by chunk."""
    content = uri = None
    if file.size <= limits.row_bytes:
        content = file.content()
    else:
        uri = files.put_chunks(file.chunks(), lambda: str(file.sha256))
    return {
        "name": file.name,
        "content": content,
        "uri": uri,
        "sha256": file.sha256,
        "size": file.size if content is None else len(content),
    }


def _of_data(source: Source, limits: Limits, files: ObjectFiles) -> Iterator[dict[str, object]]:
    assert source.data is not None
    first = 1
    for batch in source.data:
        names = column_of(batch, "name", pa.string(), first).to_pylist()
        contents = column_of(batch, "content", pa.large_binary(), first)
        for row, name in enumerate(names):
            wrong = fault_of_path(name, limits)
            if wrong:
                raise SchemaMismatchError(
                    field="name",
                    reason=f"row {first + row} of {source.name}: the name {name[:100]!r} {wrong}",
                )
            content = contents[row].as_buffer().to_pybytes()
            is_large = len(content) > limits.row_bytes
            yield {
                "name": name,
                "content": None if is_large else content,
                "uri": files.put(content) if is_large else None,
                "sha256": sha256(content).hexdigest(),
                "size": len(content),
            }
        first += batch.num_rows


# Write -----------------------------------------------------------------------------------------


def _chosen(rows: Rows, names: str) -> dict[str, tuple[str, int]]:
    """Return the digest and size of the chosen file for each name."""
    chosen: dict[str, tuple[str, int]] = {}
    for batch in rows.batches(["name", "sha256", "size"]):
        for name, digest, size in zip(*(column.to_pylist() for column in batch), strict=True):
            if names == "unique" and chosen.get(name, (digest,))[0] != digest:
                raise InvalidInputError(
                    argument="options",
                    field="names",
                    reason=f"commits have different files with the name {name!r}",
                    remedy='Pick other commits by tags, or use the last file: {"names": "last"}',
                )
            chosen[name] = (digest, size)
    folders = {name[:at] for name in chosen for at, sign in enumerate(name) if sign == "/"}
    for name in sorted(folders & chosen.keys()):
        below = next(one for one in sorted(chosen) if one.startswith(f"{name}/"))
        raise InvalidInputError(
            argument="options",
            field="names",
            reason=f"{name!r} is a file, and {below!r} needs a folder of this name",
            remedy="Pick other commits by tags",
        )
    return chosen


def _write_files(rows: Rows, out: Parts, chosen: dict[str, tuple[str, int]]) -> None:
    if len(chosen) > _PARTS:
        raise InvalidInputError(
            argument="form",
            reason=f"the set has {len(chosen)} files; at most {_PARTS} can be separate parts",
            remedy='Prepare the set with form="parquet": then the files are the rows of a table',
        )
    left = dict(chosen)
    for batch in rows.batches():
        columns = (batch[name].to_pylist() for name in ("name", "uri", "sha256"))
        for content, name, uri, digest in zip(batch["content"], *columns, strict=True):
            if left.get(name, ("",))[0] != digest:
                continue  # The file of another commit was chosen, or the file is written already.
            _, size = left.pop(name)
            if uri is not None:
                out.refer(name, uri, size, digest)
            else:
                with out.open_file(name) as sink:
                    sink.write(content.as_buffer())
