"""Requests and responses as Pydantic models. Responses have the fields of `datasets.values`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from txlog.training.datasets.training_set import TrainingSet
from txlog.training.datasets.values import Code, Commit, Input, Summary


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", from_attributes=True, strict=True)


class InputModel(_Model):
    """An input from which a commit was made."""

    uri: str
    role: str = "source"
    version: int | None = None
    digest: str | None = None


class CodeModel(_Model):
    """The program that made a commit."""

    name: str
    version: str | None = None


class CommitModel(_Model):
    """A commit. Commits are numbered from 1 without gaps. Times are in milliseconds, UTC."""

    dataset: str
    commit_id: int
    created_ms: int
    type: str
    rows: int
    digest: str
    message: str
    tags: dict[str, str]
    statistics: dict[str, int]
    inputs: list[InputModel]
    code: CodeModel | None
    hidden: bool
    purged: bool

    @classmethod
    def of(cls, commit: Commit) -> CommitModel:
        """Return the model of a commit."""
        plain = asdict(commit)
        return cls.model_validate(plain | {"inputs": list(plain["inputs"])})

    def value(self) -> Commit:
        """Return the commit."""
        plain = self.model_dump()
        code = plain.pop("code")
        inputs = tuple(Input(**one) for one in plain.pop("inputs"))
        return Commit(**plain, inputs=inputs, code=None if code is None else Code(**code))


class SummaryModel(_Model):
    """A data set and its commits."""

    dataset_id: int
    uuid: str
    name: str
    type: str
    created_ms: int
    last_updated_ms: int
    description: str | None
    commits: list[CommitModel]
    names: dict[str, int | str]
    deleted: bool

    @classmethod
    def of(cls, summary: Summary) -> SummaryModel:
        """Return the model of a summary."""
        return cls(
            dataset_id=summary.dataset_id,
            uuid=summary.uuid,
            name=summary.name,
            type=summary.type,
            created_ms=summary.created_ms,
            last_updated_ms=summary.last_updated_ms,
            description=summary.description,
            commits=[CommitModel.of(commit) for commit in summary.commits],
            names=dict(summary.names),
            deleted=summary.deleted,
        )

    def value(self) -> Summary:
        """Return the summary."""
        plain = self.model_dump(exclude={"commits"})
        return Summary(**plain, commits=tuple(commit.value() for commit in self.commits))


class SummariesModel(_Model):
    """A page of data sets; `next` is the value of `after` for the next page."""

    datasets: list[SummaryModel]
    next: int | None


class PartModel(_Model):
    """A part of a training set; `url` is the address of its bytes, below the service."""

    name: str
    url: str
    bytes: int
    rows: int | None
    sha256: str


class FailureModel(_Model):
    """Why a training set could not be made."""

    code: str
    text: str


class TrainingSetModel(_Model):
    """A training set: RUNNING, READY with its parts, or FAILED with the reason."""

    dataset_id: int
    dataset: str
    version_hash: str
    state: Literal["RUNNING", "READY", "FAILED"]
    commits: list[CommitModel]
    form: str
    options: dict[str, str]
    parts: list[PartModel]
    statistics: dict[str, int]
    error: FailureModel | None

    @classmethod
    def of(cls, made: TrainingSet) -> TrainingSetModel:
        """Return the model of a training set."""
        base = f"/v1/datasets/{made.dataset_id}/training-sets/{made.version_hash}/parts/"
        parts = [
            PartModel(
                name=part.name,
                url=base + quote(part.name),
                bytes=part.bytes,
                rows=part.rows,
                sha256=part.sha256,
            )
            for part in made.parts
        ]
        return cls(
            dataset_id=made.dataset_id,
            dataset=made.dataset,
            version_hash=made.version_hash,
            state=made.state,
            commits=[CommitModel.of(commit) for commit in made.commits],
            form=made.form,
            options=dict(made.options),
            parts=parts,
            statistics=dict(made.statistics),
            error=None if made.error is None else FailureModel(**asdict(made.error)),
        )


class TrainingSetsModel(_Model):
    """The training sets of a data set, in the order of the requests."""

    training_sets: list[TrainingSetModel]


class DiffModel(_Model):
    """The differences between two commits or training sets, without the rows."""

    commits_added: list[int]
    commits_removed: list[int]
    labels_added: list[str]
    labels_removed: list[str]
    rows_added: int
    rows_removed: int
    statistics: dict[str, list[int]]


class NodeModel(_Model):
    """A commit, a training set, a table at a version, a file, or code."""

    id: str
    kind: str
    label: str
    digest: str | None
    purged: bool


class EdgeModel(_Model):
    """`target` was made from `source`."""

    source: str
    target: str
    role: str


class GraphModel(_Model):
    """The sources of a commit or training set, or its results."""

    nodes: list[NodeModel]
    edges: list[EdgeModel]


class VerifiedModel(_Model):
    """The commits whose rows have the recorded digest."""

    commits: list[int]


class HealthModel(_Model):
    """The server responds and can read its folder."""

    status: Literal["ok"]
    version: str


class ProblemModel(_Model):
    """An error: `application/problem+json` (RFC 9457)."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    fields: dict[str, Any]


# Requests --------------------------------------------------------------------------------------


class _Adding(_Model):
    """The fields of a request that adds a commit."""

    tags: dict[str, str] = Field(default_factory=dict)
    inputs: list[str | InputModel] = Field(default_factory=list)
    code: CodeModel | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Dataset.update` that both requests have."""
        inputs = [one if isinstance(one, str) else Input(**dict(one)) for one in self.inputs]
        code = None if self.code is None else Code(**dict(self.code))
        return {"tags": self.tags, "inputs": inputs, "code": code}


class CreateRequest(_Adding):
    """Create a data set, with a first commit if there is a source."""

    name: str
    type: str
    source: str | None = None
    description: str | None = None
    message: str = "Initial commit"


class CommitRequest(_Adding):
    """Add a commit with the data of a source."""

    source: str
    message: str = ""
    schema_mode: Literal["merge"] | None = None


class PrepareRequest(_Model):
    """Pick the commits up to one that have the tags, and make a training set."""

    commit: int | str | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    form: str = "parquet"
    options: dict[str, str] = Field(default_factory=dict)


class TagRequest(_Model):
    """Give a name to a commit, by its number, or to a training set, by its hash."""

    target: int | str


class PurgeRequest(_Model):
    """Remove the bytes of a commit, or of the whole data set, permanently."""

    confirm: str
    commit: int | str | None = None
