"""Requests and responses that have no class in `datasets`: Pydantic models of their JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from txlog.training.datasets.steps import Step
from txlog.training.datasets.training_set import TrainingSet
from txlog.training.datasets.values import Code, Commit, Failure, Input, Summary


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", from_attributes=True, strict=True)


class SummariesModel(_Model):
    """A page of data sets; `next` is the value of `after` for the next page."""

    datasets: list[Summary]
    next: int | None


class PartModel(_Model):
    """A part of a training set; `url` is the address of its bytes, below the service."""

    name: str
    url: str
    bytes: int
    rows: int | None
    sha256: str


class TrainingSetModel(_Model):
    """A training set: RUNNING, READY with its parts, or FAILED with the reason."""

    dataset_id: int
    dataset: str
    version_hash: str
    state: Literal["RUNNING", "READY", "FAILED"]
    commits: list[Commit]
    form: str
    options: dict[str, str]
    parts: list[PartModel]
    statistics: dict[str, int]
    error: Failure | None

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
            commits=[*made.commits],
            form=made.form,
            options=dict(made.options),
            parts=parts,
            statistics=dict(made.statistics),
            error=made.error,
        )


class TrainingSetsModel(_Model):
    """The training sets of a data set, in the order of the requests."""

    training_sets: list[TrainingSetModel]


class ChangeModel(_Model):
    """A change that somebody asked for, as a row of `Datasets.audit`; `time` is in UTC."""

    time: datetime
    user: str | None
    client: str | None
    action: str
    dataset_id: int | None
    dataset: str
    commit: int | None
    training_set: str | None
    details: str | None


class AuditModel(_Model):
    """Changes in the order of their time."""

    changes: list[ChangeModel]


class DiffModel(_Model):
    """The differences between two commits or training sets, without the rows."""

    commits_added: list[int]
    commits_removed: list[int]
    labels_added: list[str]
    labels_removed: list[str]
    rows_added: int
    rows_removed: int
    statistics: dict[str, list[int]]


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
    """The fields of a request that adds a commit.

    All values are texts, which other values of JSON never become. If it were strict, Pydantic 2.9
    would accept no JSON for `Input`.
    """

    model_config = ConfigDict(strict=False)

    tags: dict[str, str] = Field(default_factory=dict)
    inputs: list[str | Input] = Field(default_factory=list)
    code: Code | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Dataset.update` that both requests have."""
        return {"tags": self.tags, "inputs": self.inputs, "code": self.code}


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
    replace: StrictBool | StrictInt = False
    branch: str | None = None


class PrepareRequest(_Model):
    """Pick the commits up to one that have the tags, and make a training set."""

    commit: int | str | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    form: str = "parquet"
    options: dict[str, str] = Field(default_factory=dict)
    branch: str | None = None


class BranchRequest(_Model):
    """Make a branch, unless it is open."""

    name: str


class CommitsModel(_Model):
    """Commits in order."""

    commits: list[Commit]


class TagRequest(_Model):
    """Give a name to a commit, by its number, or to a training set, by its hash."""

    target: int | str


class ShareRequest(_Model):
    """Say whose tokens may use a data set; null: all. What is not given stays as it is."""

    readers: list[str] | None = None
    writers: list[str] | None = None
    owner: str | None = None

    def given(self) -> dict[str, Any]:
        """Return the arguments of `Dataset.share` that the request has."""
        return self.model_dump(exclude_unset=True)


class StepsModel(_Model):
    """Steps in the order in which they were added."""

    steps: list[Step]


class StepRequest(_Model):
    """Add a step, whose program the server allows."""

    input: str
    run: str | list[str]
    into: str
    rows: Literal["new", "all"] = "new"
    type: str = "TABLE"
    name: str | None = None


class PurgeRequest(_Model):
    """Remove the bytes of a commit, or of the whole data set, permanently."""

    confirm: str
    commit: int | str | None = None
