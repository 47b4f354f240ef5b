"""`TrainingSet`: its commits, its version hash, and its parts.

Rules: spec/datasets.md, DST-40 and DST-41.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from txlog.base.errors import (
    InvalidInputError,
    NotFoundError,
    named_for_callers,
    require_mappings,
    require_texts,
)
from txlog.base.frozen import freeze
from txlog.extend import folders_in, open_store, required_expression, to_sql
from txlog.training.datasets.branch_state import without_replaced
from txlog.training.datasets.events import canonical
from txlog.training.datasets.values import WHERE, Asked, Commit, Failure, Part, State
from txlog.training.loader.splits import part_where

if TYPE_CHECKING:
    import pyarrow as pa

    from txlog import Table
    from txlog.extend import Store
    from txlog.training.datasets.lineage import Graph
    from txlog.training.loader.loader import Loader


@dataclass(frozen=True)
class TrainingSet:
    """The picked commits, the recipe, and the parts that were made from them.

    The same hash always has the same parts, with the same bytes.
    """

    dataset_id: int
    dataset: str  # The data set's uuid.
    version_hash: str
    state: State
    commits: tuple[Commit, ...]  # The picked commits, in order.
    form: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    root: str | None = None  # The folder of the parts, after they were made.
    parts: tuple[Part, ...] = ()
    statistics: Mapping[str, int] = field(default_factory=dict)
    error: Failure | None = None
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        freeze(self, "storage_options")

    def __hash__(self) -> int:
        return hash((self.dataset, self.version_hash, self.state))

    @property
    def picked(self) -> tuple[int, ...]:
        """The numbers of the commits, ascending."""
        return tuple(commit.commit_id for commit in self.commits)

    def table(self) -> Table:
        """Return the examples as a table; for the type GENERIC, a table of the files.

        Raises
        ------
        NotFoundError
            The training set is not made yet, or it cannot be made.
        InvalidInputError
            Its form is not `parquet`.
        """
        from txlog import Table

        root = self._made()
        if self.form != "parquet":
            raise InvalidInputError(
                argument="form",
                reason=f"the training set has the form {self.form!r}, which is not a table",
                remedy='Prepare it with form="parquet"',
            )
        named = [part.name.partition("/")[0] for part in self.parts if "/" in part.name]
        if not named:  # A set without examples has a table without files.
            found = folders_in(open_store(root, self.storage_options), "")
            named = [name for name in ("examples", "files") if name in found]
        return Table(f"{root}/{named[0]}", storage_options=self.storage_options)

    def loader(self, *, batch_size: int, **arguments: Any) -> Loader:
        """Return batches of the examples; arguments and errors as for `txlog.training.Loader`."""
        from txlog.training.loader.loader import Loader

        return Loader(self.table(), batch_size=batch_size, **arguments)

    def download(self, folder: str | os.PathLike[str]) -> list[str]:
        """Copy the parts into a folder, check their digests, and return the paths of the files.

        For the type GENERIC, these are the files themselves, in both forms.
        """
        from txlog.training.datasets.prepare import download, opened_part, unpack

        self._made()
        if not self._is_of_files():
            return download(self.parts, folder, self.storage_options)

        def opened(part: Part) -> Any:
            return opened_part(
                replace(part, uri=f"{self._home()}/{part.uri}"), self.storage_options
            )

        return unpack(self.table().scan().to_batches(), folder, opened)

    def export(
        self,
        place: str | os.PathLike[str],
        form: str,
        *,
        shard_rows: int = 100_000,
        shard_bytes: int = 256 << 20,
        storage_options: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Write the examples for other tools, batch by batch, and return the paths of the files.

        Numbers of labels become labels with names. If an error ends it, all files are removed.

        Parameters
        ----------
        place
            A folder or URI that has no files.
        form
            `webdataset`: tars. `huggingface`: Parquet files for `datasets.load_dataset`.
            `imagefolder`: the images in a folder for each label. `tfrecord`: records of
            `tf.train.Example`, by the extra `tfrecord`.
        shard_rows, shard_bytes
            The most rows of a file, and the size after which it is finished, in bytes.
        storage_options
            As for `Table`, for the place.

        Raises
        ------
        InvalidInputError
            There is no such format, or the training set has not the form `parquet`.
        AlreadyExistsError
            The place has files.
        NotFoundError
            The training set is not made yet, or it cannot be made.
        SchemaMismatchError
            The format cannot hold a column or a value; the error names it.
        """
        from txlog.training.datasets.formats import export

        return export(
            self._samples(),
            place,
            form,
            shard_rows=shard_rows,
            shard_bytes=shard_bytes,
            storage_options=storage_options,
        )

    def stream(self, form: str) -> Generator[bytes, None, None]:
        """Yield the bytes of one file with all examples, as `export` writes it.

        Nothing is written to a disk. The memory holds a few megabytes at a time, or a whole example
        that is larger. Close it (`close`) if you do not read all of it.

        Parameters
        ----------
        form
            `webdataset`: one tar. `tfrecord`: one file of records.

        Raises
        ------
        InvalidInputError
            There is no such format, or the training set has not the form `parquet`.
        NotFoundError, SchemaMismatchError
            As for `export`; they may come after some bytes.
        """
        from txlog.training.datasets.formats import stream

        self.table()  # It raises before the first byte.
        return stream(self._samples, form)

    def ray(self, columns: Sequence[str] | None = None) -> Any:
        """Return the examples as a `ray.data.Dataset`, whose tasks read one data file each.

        Nothing is read before its rows are used. The tasks need txlog and access to the folder.
        The rows are those of the table `examples`: unlike those of `export`, they have the numbers
        of labels, and of a content that is stored as a file the `uri` and a null `content`.

        Parameters
        ----------
        columns
            As for `Table.scan`.

        Raises
        ------
        UnsupportedFeatureError
            Ray Data is not installed.
        """
        from txlog.training.datasets.formats.ray_data import as_ray

        return as_ray(self.table(), columns)

    def _samples(self) -> pa.RecordBatchReader:
        """Return the examples with their contents, and with the names of labels as features."""
        import pyarrow as pa

        from txlog.base.arrow import pq
        from txlog.training.datasets.formats.samples import as_samples
        from txlog.training.datasets.prepare import opened_part
        from txlog.training.datasets.types import stores_objects, type_of_rows

        rows = self.table().scan().to_reader()
        named = next((part for part in self.parts if part.name == "labels.parquet"), None)
        classes = None
        if named is not None:
            with opened_part(named, self.storage_options) as opened:
                labels = pq.read_table(pa.BufferReader(opened.read()))["label_name"]
                classes = labels.to_pylist() or None
        stored = stores_objects(self.commits[0].type, rows.schema.names)
        home = open_store(self._home(), self.storage_options) if stored else None
        kind = getattr(type_of_rows(self.commits[0].type), "content_feature", None)
        content_of = None if home is None else partial(_content_at, home)
        return as_samples(rows, classes, kind, content_of)

    def content(self, digest: str) -> Part:
        """Return the URI of a content to which a row of the table refers in `uri`.

        Parameters
        ----------
        digest
            The SHA-256 of the content, in hex digits.

        Raises
        ------
        NotFoundError
            The training set is not made, or none of its rows refers to such a content.
        InvalidInputError
            Its form is not `parquet`.
        """
        from txlog import col, lit
        from txlog.training.datasets.ingest import object_path
        from txlog.training.datasets.types import OBJECTS, stores_objects

        table, path = self.table(), object_path(digest)
        is_known = stores_objects(self.commits[0].type, table.schema.names)
        if not is_known or not table.count(col(OBJECTS) == lit(path)):
            raise NotFoundError(
                reason=f"no row of the training set {self.version_hash} names a content with the "
                f"SHA-256 {digest[:100]!r}",
                remedy="Choose one that the column uri of its rows names",
            )
        size = open_store(self._home(), self.storage_options).info(path).size
        return Part(digest, f"{self._home()}/{path}", size, None, digest)

    def _is_of_files(self) -> bool:
        """Return whether the parts are a table whose rows are files."""
        from txlog.training.datasets.types import type_of_rows

        if self.form != "parquet":
            return False
        return bool(getattr(type_of_rows(self.commits[0].type), "as_files", False))

    def _home(self) -> str:
        """Return the folder's root: the parts are in sets/<uuid>/<hash>/<attempt>."""
        return self._made().rsplit("/", 4)[0]

    def provenance(self) -> Graph:
        """Return what the training set was made from: its commits, and their inputs."""
        from txlog.training.datasets.lineage import provenance

        return provenance(self)

    def _made(self) -> str:
        if self.state == "READY":
            return self.root or ""
        why = f": {self.error.text}" if self.error is not None else ""
        raise NotFoundError(
            reason=f"the training set {self.version_hash} is {self.state}{why}",
            remedy="Prepare it again"
            if self.state == "FAILED"
            else "Wait for it: fetch(version_hash, wait_s=60)",
        )


def _content_at(home: Store, uri: str) -> bytes:
    from txlog.training.datasets.aside import open_object

    with open_object(home, uri) as opened:
        content: bytes = opened.read()
    return content


def pick(
    commits: Iterable[Commit],
    upto: int | None = None,
    tags: Mapping[str, str] | None = None,
    branch_id: int = 0,
) -> list[Commit]:
    """Return the commits up to and including one that have all tags and are not hidden.

    Those that another one of them replaces are left out, and those of branches but one.

    Raises
    ------
    NotFoundError
        There is no commit `upto`; the error names the last one.
    InvalidInputError
        No commit has the tags.
    """
    known = list(commits)
    wanted = tags or {}
    if upto is not None and all(commit.commit_id != upto for commit in known):
        last = max((commit.commit_id for commit in known), default=0)
        raise NotFoundError(
            version=upto,
            reason=f"there is no commit {upto}",
            remedy=f"Choose one up to {last}" if last else "Add one: update",
        )
    below = [c for c in known if upto is None or c.commit_id <= upto]
    shown = [c for c in below if not (c.hidden or c.purged) and c.branch_id in (0, branch_id)]
    picked = [c for c in shown if wanted.items() <= c.tags.items()]
    if not picked:
        listed = ", ".join(f"{name}={value}" for name, value in sorted(wanted.items()))
        raise InvalidInputError(
            argument="tags" if wanted else "commit",
            reason=f"no commit of {len(below)} has {listed}"
            if wanted
            else f"none of {len(below)} commits can be picked",
            remedy="Ask for tags that a commit has" if wanted else "Add a commit, or show one",
        )
    return sorted(without_replaced(picked), key=lambda c: c.commit_id)


def ask(
    dataset: str,
    type_key: str,
    picked: Sequence[Commit],
    form: str = "parquet",
    options: Mapping[str, str] | None = None,
) -> Asked:
    """Return a training set of picked commits, with its version hash.

    The hash is `v1` and the first 40 hex digits of the SHA-256 of canonical JSON, so it names the
    same content and recipe in every process.

    Parameters
    ----------
    dataset
        The data set's uuid.
    type_key
        Name and version of the type, such as `text-intent/1`.
    """
    commits = tuple((commit.commit_id, commit.digest) for commit in picked)
    recipe = {
        "commits": [list(one) for one in commits],
        "dataset": dataset,
        "form": form,
        "options": dict(options or {}),
        "type": type_key,
    }
    digest = sha256(canonical(recipe).encode()).hexdigest()
    return Asked(f"v1{digest[:40]}", type_key, commits, form, dict(options or {}))


def with_where(
    options: Mapping[str, str] | None,
    where: str | None,
    split: Mapping[str, float] | None,
    part: str | None,
    key: str | Sequence[str] | None,
) -> Mapping[str, str] | None:
    """Return options with the predicate of `where` and of a part of a split. Rule: DST-46.

    Raises
    ------
    InvalidInputError
        `where` is no SQL, or the options have a predicate already; or as for `split_where`.
    """
    found = part_where(split, part, key)
    if where is None and found is None:
        return options
    require_mappings(options=options)
    given = dict(options or {})
    if WHERE in given:
        raise InvalidInputError(
            argument="options",
            field=WHERE,
            reason="a predicate is given by other arguments, too",
            remedy="Write all of it in where",
        )
    texts = [] if found is None else [found]
    if where is not None:
        require_texts(where=where)
        # As one text, it has no comments and its parentheses are in pairs.
        texts.insert(0, f"({to_sql(required_expression(where, argument='where'))})")
    return {**given, WHERE: " AND ".join(texts)}


named_for_callers(TrainingSet)
