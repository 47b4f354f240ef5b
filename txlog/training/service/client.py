"""A client of the HTTP service, with methods like those of `Datasets` and `Dataset`."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

import httpx
import pyarrow as pa
from pydantic import TypeAdapter

from txlog.base.arrow import pq, table_of_rows
from txlog.base.errors import NotFoundError, UnsupportedFeatureError, named_for_callers
from txlog.base.moments import require_duration
from txlog.base.thresholds import Threshold
from txlog.training.datasets.access import UNCHANGED, Unchanged
from txlog.training.datasets.audit import AUDIT
from txlog.training.datasets.limits import DEFAULT_LIMITS, require_users
from txlog.training.datasets.lineage import Direction, Graph, as_input
from txlog.training.datasets.prepare import fetch_file, unpack
from txlog.training.datasets.step_state import Rows
from txlog.training.datasets.steps import Step
from txlog.training.datasets.training_set import TrainingSet, with_where
from txlog.training.datasets.values import Access, Code, Commit, Input, Part, Summary
from txlog.training.service.arguments import check_arguments
from txlog.training.service.connection import TRIES, Connection
from txlog.training.service.models import (
    AuditModel,
    DiffModel,
    StepsModel,
    SummariesModel,
    TrainingSetModel,
    TrainingSetsModel,
)

if TYPE_CHECKING:
    from txlog import Table

_LONGEST_WAIT_S = 50.0  # The longest wait of one request, in seconds.
_BATCH_ROWS: Threshold = 64  # Each row contains a file of up to some megabytes.
_COMMIT, _SUMMARY, _GRAPH = TypeAdapter(Commit), TypeAdapter(Summary), TypeAdapter(Graph)
_ACCESS, _STEP = TypeAdapter(Access), TypeAdapter(Step)


def connect(
    url: str,
    token: str | None = None,
    *,
    timeout_s: float = 60,
    transport: httpx.BaseTransport | None = None,
) -> RemoteDatasets:
    """Return the data sets of a server. No request is sent yet.

    Parameters
    ----------
    url
        Such as `http://127.0.0.1:6000`.
    token
        Sent as `Authorization: Bearer <token>`. Default: the variable `TXLOG_TOKEN`.
    timeout_s
        The time to wait for a response, in seconds. 50 seconds are added, because a request of
        `fetch` waits for the training set.

    The methods raise the errors of `Datasets` and `Dataset`, and these: `AccessError` if the token
    is unknown or lacks a right, `StoreError` if the server cannot be reached.

    Examples
    --------
    >>> intents = connect("http://127.0.0.1:6000").dataset("intents")  # doctest: +SKIP
    >>> made = intents.fetch(intents.prepare().version_hash, wait_s=60)  # doctest: +SKIP
    """
    token = token or os.environ.get("TXLOG_TOKEN")
    client = httpx.Client(
        base_url=url,
        headers={} if token is None else {"Authorization": f"Bearer {token}"},
        timeout=timeout_s + _LONGEST_WAIT_S,
        transport=transport or httpx.HTTPTransport(retries=TRIES - 1),
    )
    return RemoteDatasets(Connection(client))


class RemoteDatasets:
    """The data sets of a server, as `Datasets` has them.

    The server itself sweeps, so there is no `sweep`, and it runs no steps. It does not tell its
    folder, its sources and its recorded transactions, so there are no `root`, `sources` and
    `recorded`.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"txlog.training.connect({str(self._connection.client.base_url)!r})"

    def __enter__(self) -> RemoteDatasets:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connection.client.close()

    def create(
        self,
        name: str,
        type: str,
        source: str | None = None,
        *,
        tags: Mapping[str, str] | None = None,
        description: str | None = None,
        message: str = "Initial commit",
        inputs: Sequence[Any] = (),
        code: Code | str | None = None,
        txn: tuple[str, int] | None = None,
    ) -> RemoteDataset:
        """Create a data set, as `Datasets.create` does; the server reads the source."""
        body = {
            "name": name,
            "type": type,
            "source": source,
            "description": description,
            "message": message,
            **_adding(tags, inputs, code),
        }
        made = self._connection.send("POST", "/v1/datasets", body=body, txn=txn)
        return RemoteDataset(self._connection, _SUMMARY.validate_python(made))

    def dataset(self, wanted: int | str) -> RemoteDataset:
        """Return a data set by its number or name."""
        found = self._connection.send("GET", _path(wanted))
        return RemoteDataset(self._connection, _SUMMARY.validate_python(found))

    def list(
        self,
        limit: int = 100,
        after: int | None = None,
        type: str | None = None,
        *,
        deleted: bool = False,
    ) -> list[Summary]:
        """Return data sets in the order in which they were made."""
        query = {"limit": limit, "after": after, "type": type, "deleted": deleted}
        found = self._connection.send("GET", "/v1/datasets", query=query)
        return SummariesModel.model_validate(found).datasets

    def steps(self) -> Sequence[Step]:
        """Return the steps of data sets that the token may read."""
        return [*StepsModel.model_validate(self._connection.send("GET", "/v1/steps")).steps]

    def on_commit(
        self,
        dataset: int | str,
        *,
        run: str | Sequence[str],
        into: str,
        rows: Rows = "new",
        type: str = "TABLE",
        name: str | None = None,
    ) -> Step:
        """Add a step, as `Datasets.on_commit` does; the server must allow its program."""
        body = {
            "input": str(dataset),
            "run": run if isinstance(run, str) else list(run),
            "into": into,
            "rows": rows,
            "type": type,
            "name": name,
        }
        return _STEP.validate_python(self._connection.send("POST", "/v1/steps", body=body))

    def remove_step(self, name: str) -> None:
        """Remove a step; the data set that it made stays."""
        self._connection.send("DELETE", f"/v1/steps/{_step(name)}")

    def audit(self) -> pa.Table:
        """Return the changes of the data sets that the token may read, as `Datasets.audit` does."""
        found = AuditModel.model_validate_json(self._connection.answer("GET", "/v1/audit").content)
        return table_of_rows([vars(one) for one in found.changes], AUDIT)


@dataclass(frozen=True, kw_only=True)
class RemoteTrainingSet(TrainingSet):
    """A training set of a server; the URIs of its parts are addresses below the server."""

    connection: Connection = field(repr=False, compare=False)

    def __hash__(self) -> int:
        return super().__hash__()

    def download(self, folder: str | os.PathLike[str]) -> list[str]:
        """Copy the parts into a folder; errors as for `TrainingSet.download`.

        An existing part with the same bytes stays. Each part gets its name when it is complete. For
        the type GENERIC, these are the files themselves, in both forms.
        """
        self._made()
        if not self._is_of_files():
            return self._fetched(folder)
        base = f"{_path(self.dataset_id)}/training-sets/{_step(self.version_hash)}/contents"

        def opened(content: Part) -> Any:
            return self.connection.opened(f"{base}/{_step(content.sha256)}")

        with TemporaryDirectory() as staged:
            files = map(pq.ParquetFile, self._fetched(staged))
            batches = (batch for file in files for batch in file.iter_batches(_BATCH_ROWS))
            return unpack(batches, folder, opened)

    def _fetched(self, folder: str | os.PathLike[str]) -> list[str]:
        return [
            fetch_file(part, folder, partial(self.connection.opened, part.uri))
            for part in self.parts
        ]

    def stream(self, form: str) -> Generator[bytes, None, None]:
        """Yield the bytes of one file with all examples, as `TrainingSet.stream` does."""
        self._made()
        path = f"{_path(self.dataset_id)}/training-sets/{_step(self.version_hash)}/export"
        with self.connection.opened(f"{path}/{_step(form)}") as body:
            while data := body.read():
                yield data

    def export(
        self,
        place: str | os.PathLike[str],
        form: str,
        *,
        shard_rows: int = 100_000,
        shard_bytes: int = 256 << 20,
        storage_options: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Raise, because a server offers one file with all examples.

        Raises
        ------
        UnsupportedFeatureError
            Always; the remedy is `stream`.
        """
        raise UnsupportedFeatureError(
            features=("exports over HTTP",),
            reason="a server offers all examples as one file",
            remedy="Write the bytes of stream; or open the folder with txlog.training.Datasets",
        )

    def table(self) -> Table:
        """Raise, because a server offers files, not tables.

        Raises
        ------
        UnsupportedFeatureError
            Always; the remedy is `download`.
        """
        raise UnsupportedFeatureError(
            features=("tables over HTTP",),
            reason="a server offers the parts of a training set as files",
            remedy="Call download; or open the folder with txlog.training.Datasets",
        )


class RemoteDataset:
    """A data set of a server, as `Dataset` has it.

    There is no `table`, because a server offers files. `diff` returns no rows, and takes no `key`.
    """

    def __init__(self, connection: Connection, summary: Summary) -> None:
        self._connection = connection
        self._path = _path(summary.dataset_id)
        self.dataset_id = summary.dataset_id
        self.uuid = summary.uuid
        self.name = summary.name
        self.type = summary.type

    def __repr__(self) -> str:
        return f"RemoteDataset({self.dataset_id}, {self.name!r}, {self.type!r})"

    def update(
        self,
        source: str,
        message: str = "",
        tags: Mapping[str, str] | None = None,
        *,
        inputs: Sequence[Any] = (),
        code: Code | str | None = None,
        schema_mode: Literal["merge"] | None = None,
        txn: tuple[str, int] | None = None,
        replace: bool | int = False,
        branch: str | None = None,
    ) -> Commit:
        """Add a commit, as `Dataset.update` does; the server reads the source."""
        body = {
            "source": source,
            "message": message,
            "schema_mode": schema_mode,
            "replace": replace,
            "branch": branch,
            **_adding(tags, inputs, code),
        }
        made = self._send("POST", "/commits", body=body, txn=txn)
        return _COMMIT.validate_python(made)

    @property
    def access(self) -> Access:
        """Who may use it with a token."""
        return self.summary().access

    def share(
        self,
        *,
        readers: Sequence[str] | Unchanged | None = UNCHANGED,
        writers: Sequence[str] | Unchanged | None = UNCHANGED,
        owner: str | None = None,
    ) -> Access:
        """Set which tokens may use it, as `Dataset.share`. It needs the owner, or `admin`."""
        body: dict[str, Any] = {
            name: None if given is None else list(require_users(name, given) or ())
            for name, given in (("readers", readers), ("writers", writers))
            if not isinstance(given, Unchanged)
        }
        if owner is not None:
            body["owner"] = owner
        return _ACCESS.validate_python(self._send("PUT", "/access", body=body))

    def commits(self) -> list[Commit]:
        """Return the commits in order."""
        return [*self.summary().commits]

    def commit(self, wanted: int | str | None = None) -> Commit:
        """Return a commit by its number or name. Default: the last one."""
        if wanted is None:
            commits = [one for one in self.commits() if one.branch is None]
            if not commits:
                raise NotFoundError(reason=f"the data set {self.name!r} has no commit yet")
            return commits[-1]
        found = self._send("GET", f"/commits/{_step(wanted)}")
        return _COMMIT.validate_python(found)

    def summary(self) -> Summary:
        """Return the description of the data set, and its commits."""
        return _SUMMARY.validate_python(self._send("GET", ""))

    def verify(self, commit: int | str | None = None) -> list[Commit]:
        """Compute digests again; return the matching commits, as `Dataset.verify` does."""
        fits = {*self._send("POST", ":verify", query={"commit": commit})["commits"]}
        return [one for one in self.commits() if one.commit_id in fits]

    def prepare(
        self,
        commit: int | str | None = None,
        tags: Mapping[str, str] | None = None,
        form: str = "parquet",
        options: Mapping[str, str] | None = None,
        *,
        where: str | None = None,
        split: Mapping[str, float] | None = None,
        part: str | None = None,
        key: str | Sequence[str] | None = None,
        branch: str | None = None,
    ) -> RemoteTrainingSet:
        """Start to make a training set, as `Dataset.prepare` does, and return at once."""
        options = with_where(options, where, split, part, key)
        body = {
            "commit": commit,
            "tags": dict(tags or {}),
            "form": form,
            "options": dict(options or {}),
            "branch": branch,
        }
        return self._set(self._send("POST", "/training-sets", body=body))

    def fetch(self, version_hash: str, wait_s: float = 0) -> RemoteTrainingSet:
        """Return the state of a training set. While it is RUNNING, wait up to `wait_s` seconds."""
        path = f"/training-sets/{_step(version_hash)}"
        require_duration("wait_s", wait_s)
        while True:
            wait = min(wait_s, _LONGEST_WAIT_S)
            made = self._set(self._send("GET", path, query={"wait": wait}))
            wait_s -= wait
            if made.state != "RUNNING" or wait_s <= 0:
                return made

    def training_sets(self) -> list[RemoteTrainingSet]:
        """Return the requested training sets, in the order of the requests."""
        found = TrainingSetsModel.model_validate(self._send("GET", "/training-sets"))
        return [_set_of(one, self._connection) for one in found.training_sets]

    def branch(self, name: str) -> None:
        """Make a branch, as `Dataset.branch` does."""
        self._send("POST", "/branches", body={"name": name})

    def branches(self) -> list[str]:
        """Return the names of the branches that are neither published nor discarded."""
        return [*self._send("GET", "/branches")]

    def publish(self, name: str) -> list[Commit]:
        """Let all training sets pick the commits of a branch, and return them."""
        found = self._send("POST", f"/branches/{_step(name)}:publish")
        return [_COMMIT.validate_python(one) for one in found["commits"]]

    def discard(self, name: str) -> None:
        """End a branch without its commits."""
        self._send("DELETE", f"/branches/{_step(name)}")

    def tag(self, name: str, target: int | str | None) -> None:
        """Give a name to a commit or a training set; None removes it."""
        DEFAULT_LIMITS.require_name("name", name)  # A slash would be another address.
        path = f"/tags/{_step(name)}"
        if target is None:
            self._send("DELETE", path)
        else:
            self._send("PUT", path, body={"target": target})

    def hide(self, commit: int | str) -> None:
        """Exclude a commit from later training sets."""
        self._send("POST", f"/commits/{_step(commit)}:hide")

    def show(self, commit: int | str) -> None:
        """Undo `hide`."""
        self._send("POST", f"/commits/{_step(commit)}:show")

    def delete(self) -> None:
        """Omit the data set from lists, and refuse changes."""
        self._send("DELETE", "")

    def undelete(self) -> None:
        """Undo `delete`."""
        self._send("POST", ":undelete")

    def purge(self, commit: int | str | None = None, *, confirm: str) -> None:
        """Remove bytes permanently, as `Dataset.purge` does."""
        self._send("POST", ":purge", body={"commit": commit, "confirm": confirm})

    def diff(self, a: int | str, b: int | str) -> dict[str, Any]:
        """Return the differences of `b` from `a` as in `Diff.to_json`, without the rows."""
        found = self._send("GET", "/diff", query={"from": a, "to": b})
        return DiffModel.model_validate(found).model_dump()

    def lineage(
        self,
        commit: int | str | None = None,
        direction: Direction = "up",
        depth: int | None = None,
    ) -> Graph:
        """Return the sources of a commit or training set (`up`), or its results (`down`)."""
        wanted = self.commit().commit_id if commit is None else commit
        query = {"direction": direction, "depth": depth}
        answer = self._send("GET", f"/commits/{_step(wanted)}/lineage", query=query)
        return _GRAPH.validate_python(answer)

    def _send(self, method: str, below: str, **arguments: Any) -> Any:
        return self._connection.send(method, self._path + below, **arguments)

    def _set(self, answer: Any) -> RemoteTrainingSet:
        return _set_of(TrainingSetModel.model_validate(answer), self._connection)


def _path(dataset: int | str) -> str:
    return f"/v1/datasets/{_step(dataset)}"


def _step(name: int | str) -> str:
    return quote(str(name), safe="")


def _adding(
    tags: Mapping[str, str] | None, inputs: Sequence[Any], code: Code | str | None
) -> dict[str, Any]:
    given: list[Input] = [as_input(one) for one in inputs]
    name = Code(code) if isinstance(code, str) else code
    return {
        "tags": dict(tags or {}),
        "inputs": [{**vars(one)} for one in given],
        "code": None if name is None else {**vars(name)},
    }


def _set_of(model: TrainingSetModel, connection: Connection) -> RemoteTrainingSet:
    return RemoteTrainingSet(
        connection=connection,
        dataset_id=model.dataset_id,
        dataset=model.dataset,
        version_hash=model.version_hash,
        state=model.state,
        commits=tuple(model.commits),
        form=model.form,
        options=model.options,
        parts=tuple(
            Part(one.name, one.url, one.bytes, one.rows, one.sha256) for one in model.parts
        ),
        statistics=model.statistics,
        error=model.error,
    )


check_arguments(RemoteDatasets)
check_arguments(RemoteDataset)
named_for_callers(RemoteDatasets)
named_for_callers(RemoteDataset)
