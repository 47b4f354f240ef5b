"""`TrainingSet`: a version hash, how far it is, and what was made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from txlog.datasets.values import Commit, Failure, Part, State
from txlog.errors import InvalidInputError, NotFoundError
from txlog.lazy import dataclass

if TYPE_CHECKING:
    from txlog.datasets.lineage import Graph
    from txlog.loader.loader import Loader
    from txlog.table.table import Table


@dataclass(frozen=True)
class TrainingSet:
    """The commits that were picked, by what recipe, and the parts that were made of them.

    The same hash always has the same parts, with the same bytes.
    """

    dataset_id: int
    dataset: str  # The data set's uuid.
    version_hash: str
    state: State
    commits: tuple[Commit, ...]  # Those that were picked, in order.
    form: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    root: str | None = None  # The folder of the parts, once they are made.
    parts: tuple[Part, ...] = ()
    statistics: Mapping[str, int] = field(default_factory=dict)
    error: Failure | None = None
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    def __hash__(self) -> int:
        return hash((self.dataset, self.version_hash, self.state))

    @property
    def picked(self) -> tuple[int, ...]:
        """The numbers of the commits, ascending."""
        return tuple(commit.commit_id for commit in self.commits)

    def table(self) -> Table:
        """Return the examples as a table; of the type GENERIC, the files.

        Raises
        ------
        NotFoundError
            The training set is not made, or cannot be.
        InvalidInputError
            Its form is not `parquet`.
        """
        from txlog.table.table import Table

        root = self._made()
        if self.form != "parquet":
            raise InvalidInputError(
                argument="form",
                reason=f"the training set has the form {self.form!r}, which is no table",
                remedy='Prepare it with form="parquet"',
            )
        name = next(part.name.partition("/")[0] for part in self.parts if "/" in part.name)
        return Table(f"{root}/{name}", storage_options=self.storage_options)

    def loader(self, *, batch_size: int, **arguments: Any) -> Loader:
        """Return batches of the examples; arguments and errors as for `txlog.loader.Loader`."""
        from txlog.loader.loader import Loader

        return Loader(self.table(), batch_size=batch_size, **arguments)

    def download(self, folder: str | os.PathLike[str]) -> list[str]:
        """Copy the parts into a folder, check their digests, and return the paths of the files.

        Of the type GENERIC, it is the files themselves, in either form.
        """
        from txlog.datasets.prepare import download, unpack
        from txlog.datasets.types import type_of

        root = self._made()
        if self.form == "parquet" and getattr(type_of(self.commits[0].type), "as_files", False):
            home = root.rsplit("/", 4)[0]  # The folder is sets/<uuid>/<hash>/<attempt>.
            return unpack(self.table(), home, folder, self.storage_options)
        return download(self.parts, folder, self.storage_options)

    def provenance(self) -> Graph:
        """Return what the training set was made from: its commits, and their inputs."""
        from txlog.datasets.lineage import provenance

        return provenance(self)

    def _made(self) -> str:
        if self.state == "READY" and self.root is not None:
            return self.root
        why = f": {self.error.text}" if self.error is not None else ""
        raise NotFoundError(
            reason=f"the training set {self.version_hash} is {self.state}{why}",
            remedy="Prepare it again"
            if self.state == "FAILED"
            else "Wait for it: fetch(version_hash, wait_s=60)",
        )
