"""The HTTP service of a folder of data sets, with FastAPI. Each route calls a method of the folder.

Rules: spec/datasets.md, DST-60 to DST-66.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from threading import Semaphore
from typing import Annotated, Any

import orjson
from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from txlog.base.effects import REAL
from txlog.base.errors import InvalidInputError, NotFoundError, TxlogError, in_callers_words
from txlog.base.texts import number_or_name
from txlog.base.version import __version__
from txlog.training.datasets.access import AccessError
from txlog.training.datasets.events import printable
from txlog.training.datasets.folder import Datasets
from txlog.training.datasets.formats import STREAMED
from txlog.training.datasets.home import DAMAGED
from txlog.training.datasets.lineage import Direction, Graph
from txlog.training.datasets.steps import Step
from txlog.training.datasets.training_set import TrainingSet
from txlog.training.datasets.values import ONE_REQUEST, Access, Commit, Part, Summary
from txlog.training.service.answers import (
    MOST_EXPORTS,
    Bounded,
    export_answer,
    on_error,
    on_fault,
    on_http,
    on_invalid,
)
from txlog.training.service.auth import (
    Authenticator,
    Everybody,
    Principal,
    require_guarded,
)
from txlog.training.service.models import (
    AuditModel,
    BranchRequest,
    CommitRequest,
    CommitsModel,
    CreateRequest,
    DiffModel,
    HealthModel,
    PrepareRequest,
    ProblemModel,
    PurgeRequest,
    ShareRequest,
    StepRequest,
    StepsModel,
    SummariesModel,
    TagRequest,
    TrainingSetModel,
    TrainingSetsModel,
    VerifiedModel,
)
from txlog.training.service.page import page_of
from txlog.training.service.parts import part_answer

LONGEST_WAIT_S = 60.0
_OWN_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1")
_PAUSES_S = (0.02, 1.0)  # The first and the longest pause between two checks of a training set.
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The bytes.", "content": {"application/octet-stream": {}}},
    206: {"description": "A range of the bytes."},
    307: {"description": "The bytes are at another URL, which expires."},
}
_WITHOUT_BODY: dict[int | str, dict[str, Any]] = {204: {"description": "Done."}}
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {"description": "An error.", "model": ProblemModel}
}

DatasetPath = Annotated[str, Path(description="A number or a name.")]
CommitPath = Annotated[str, Path(description="A number, or a name that it was given.")]


@in_callers_words
def create_app(
    datasets: Datasets,
    authenticator: Authenticator | None = None,
    *,
    hosts: Sequence[str] = (),
    programs: Sequence[str | Sequence[str]] = (),
) -> FastAPI:
    """Return the ASGI application of a folder of data sets.

    Parameters
    ----------
    authenticator
        The rights of callers. None: everybody has all rights, so only this machine may reach the
        server; requests for other host names are refused.
    hosts
        Other allowed host names of this machine.
    programs
        The programs that steps of requests may run, as `run` of `Datasets.on_commit`. Default:
        none, because who may add any step can run any program.

    Raises
    ------
    InvalidInputError
        There is an authenticator, and the folder has no list of sources.
    """
    require_guarded(None, authenticator, datasets)
    app = FastAPI(
        title="txlog data sets",
        version=__version__,
        docs_url=None,  # FastAPI's own pages load scripts from other sites.
        redoc_url=None,
        responses=_PROBLEMS,
    )
    app.state.datasets = datasets
    app.state.authenticator = authenticator or Everybody()
    app.state.hosts = {*_OWN_NAMES, *hosts} if authenticator is None else None
    app.state.exports = Semaphore(MOST_EXPORTS)
    app.add_middleware(Bounded)
    app.add_exception_handler(TxlogError, on_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(Exception, on_fault)
    _add_datasets(app)
    _add_commits(app)
    _add_branches(app)
    _add_training_sets(app)
    _add_steps(app, [_program(one) for one in programs])
    _add_rest(app)
    return app


# Dependencies ----------------------------------------------------------------------------------


def _principal(request: Request, authorization: Annotated[str | None, Header()] = None) -> Any:
    kind, _, token = (authorization or "").partition(" ")
    given = token.strip() if kind.lower() == "bearer" else None
    known = request.app.state.authenticator.authenticate(given)
    agent = printable(request.headers.get("user-agent", ""))[:_AGENT_CHARACTERS]
    return replace(known, client=f"HTTP, {agent}" if agent else "HTTP")


_AGENT_CHARACTERS = 200
Known = Annotated[Principal, Depends(_principal)]


def _datasets(request: Request) -> Any:
    return request.app.state.datasets


Served = Annotated[Datasets, Depends(_datasets)]


def _training_set(dataset: DatasetPath, version_hash: str, datasets: Served, who: Known) -> Any:
    return who.dataset(datasets, dataset, "read").fetch(version_hash)


Made = Annotated[TrainingSet, Depends(_training_set)]


def _answer(
    made: Made,
    range: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Any:
    """Return the function that responds with the bytes of a part, according to the headers."""
    return lambda part: part_answer(part, made.storage_options, range, if_none_match)


Answer = Annotated[Callable[[Part], Response], Depends(_answer)]


def _txn(
    who: Principal,
    key: str | None,
    body: CreateRequest | CommitRequest,
) -> tuple[str, int] | None:
    """Return the pair that makes a retried request have one effect.

    The change itself refuses a key that belongs to a request with another body.

    Raises
    ------
    InvalidInputError
        The key is not valid.
    """
    if key is None:
        return None
    if not 1 <= len(key) <= 255 or not key.isascii() or not key.isprintable():
        raise InvalidInputError(
            argument="Idempotency-Key", reason="expected 1 to 255 printable ASCII characters"
        )
    application = f"{ONE_REQUEST}{sha256(orjson.dumps([who.name, key])).hexdigest()[:32]}"
    plain = orjson.dumps(body.model_dump(), option=orjson.OPT_SORT_KEYS)
    version = int.from_bytes(sha256(plain).digest()[:6], "big")
    return application, version


Key = Annotated[str | None, Header(alias="Idempotency-Key")]


# Routes ------------------------------------------------------------------------------------------


def _add_datasets(app: FastAPI) -> None:
    @app.post("/v1/datasets", status_code=201)
    def create(body: CreateRequest, datasets: Served, who: Known, key: Key = None) -> Summary:
        """Create a data set, with a first commit if there is a source."""
        who.require_create(body.name)
        made = who.acting(datasets).create(
            body.name,
            body.type,
            body.source,
            description=body.description,
            message=body.message,
            txn=_txn(who, key, body),
            **body.arguments(),
        )
        # With a key it may be one that others changed, or took over, since the first request.
        return who.dataset(datasets, str(made.dataset_id), "read").summary()

    @app.get("/v1/datasets")
    def list_datasets(
        datasets: Served,
        who: Known,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        after: Annotated[int | None, Query(ge=0)] = None,
        type: str | None = None,
        deleted: bool = False,
    ) -> SummariesModel:
        """Return data sets in the order in which they were made."""
        page, following = who.page(datasets, limit, after, type=type, deleted=deleted)
        return SummariesModel(datasets=page, next=following)

    @app.put("/v1/datasets/{dataset}/access")
    def share(dataset: DatasetPath, body: ShareRequest, datasets: Served, who: Known) -> Access:
        """Set which tokens may use a data set; null: all. It needs the owner, or the right `admin`.

        A list that the body does not have stays as it is.
        """
        return who.dataset(datasets, dataset, "write").share(**body.given())

    @app.get("/v1/datasets/{dataset}")
    def summary(dataset: DatasetPath, datasets: Served, who: Known) -> Summary:
        """Return a data set and its commits."""
        return who.dataset(datasets, dataset, "read").summary()

    @app.delete("/v1/datasets/{dataset}", status_code=204, responses=_WITHOUT_BODY)
    def delete(dataset: DatasetPath, datasets: Served, who: Known) -> None:
        """Omit a data set from lists, and refuse changes. No byte is removed."""
        who.dataset(datasets, dataset, "admin").delete()

    @app.post("/v1/datasets/{dataset}:undelete", status_code=204, responses=_WITHOUT_BODY)
    def undelete(dataset: DatasetPath, datasets: Served, who: Known) -> None:
        """Restore a deleted data set, which is given by its number."""
        who.dataset(datasets, dataset, "admin").undelete()

    @app.post("/v1/datasets/{dataset}:purge", status_code=204, responses=_WITHOUT_BODY)
    def purge(dataset: DatasetPath, body: PurgeRequest, datasets: Served, who: Known) -> None:
        """Remove the bytes of a commit, or of the whole data set, permanently."""
        found = who.dataset(datasets, dataset, "admin", purged=True)
        found.purge(body.commit, confirm=body.confirm)


def _add_commits(app: FastAPI) -> None:
    @app.post("/v1/datasets/{dataset}/commits", status_code=201)
    def update(
        dataset: DatasetPath,
        body: CommitRequest,
        datasets: Served,
        who: Known,
        key: Key = None,
    ) -> Commit:
        """Add a commit with the data of a source, completely or not at all."""
        found = who.dataset(datasets, dataset, "write")
        return found.update(
            body.source,
            body.message,
            schema_mode=body.schema_mode,
            replace=body.replace,
            branch=body.branch,
            txn=_txn(who, key, body),
            **body.arguments(),
        )

    @app.get("/v1/datasets/{dataset}/commits/{commit}")
    def commit(dataset: DatasetPath, commit: CommitPath, datasets: Served, who: Known) -> Commit:
        """Return a commit."""
        return who.dataset(datasets, dataset, "read").commit(number_or_name(commit))

    @app.post(
        "/v1/datasets/{dataset}/commits/{commit}:hide", status_code=204, responses=_WITHOUT_BODY
    )
    def hide(dataset: DatasetPath, commit: CommitPath, datasets: Served, who: Known) -> None:
        """Exclude a commit from later training sets."""
        who.dataset(datasets, dataset, "write").hide(number_or_name(commit))

    @app.post(
        "/v1/datasets/{dataset}/commits/{commit}:show", status_code=204, responses=_WITHOUT_BODY
    )
    def show(dataset: DatasetPath, commit: CommitPath, datasets: Served, who: Known) -> None:
        """Undo `hide`."""
        who.dataset(datasets, dataset, "write").show(number_or_name(commit))

    @app.get("/v1/datasets/{dataset}/commits/{commit}/lineage")
    def lineage(
        dataset: DatasetPath,
        commit: CommitPath,
        datasets: Served,
        who: Known,
        direction: Direction = "up",
        depth: Annotated[int | None, Query(ge=0)] = None,
    ) -> Graph:
        """Return the sources of a commit or a training set (`up`), or its results (`down`).

        It covers all data sets, so a token that may not read all of them is refused.
        """
        known = datasets.access(purged=False).values()  # Of a purged one it knows nothing.
        if not all(who.may_see(*one) for one in known):
            raise AccessError(
                is_known=True,
                reason="lineage covers all data sets, and the token is not for all of them",
                remedy="Use a token for all data sets",
            )
        found = who.dataset(datasets, dataset, "read")
        return found.lineage(number_or_name(commit), direction, depth)

    @app.get("/v1/datasets/{dataset}/diff")
    def diff(
        dataset: DatasetPath,
        datasets: Served,
        who: Known,
        a: Annotated[str, Query(alias="from")],
        b: Annotated[str, Query(alias="to")],
    ) -> DiffModel:
        """Return the differences between two commits or training sets."""
        found = who.dataset(datasets, dataset, "read")
        return DiffModel(**found.diff(number_or_name(a), number_or_name(b)).to_json())

    @app.post("/v1/datasets/{dataset}:verify")
    def verify(
        dataset: DatasetPath, datasets: Served, who: Known, commit: str | None = None
    ) -> VerifiedModel:
        """Compute the digests of all commits, or of one commit, again from their rows."""
        wanted = None if commit is None else number_or_name(commit)
        found = who.dataset(datasets, dataset, "write").verify(wanted)
        return VerifiedModel(commits=[one.commit_id for one in found])

    @app.put("/v1/datasets/{dataset}/tags/{name}", status_code=204, responses=_WITHOUT_BODY)
    def tag(
        dataset: DatasetPath, name: str, body: TagRequest, datasets: Served, who: Known
    ) -> None:
        """Give a name to a commit or a training set; an existing name is moved."""
        who.dataset(datasets, dataset, "write").tag(name, body.target)

    @app.delete("/v1/datasets/{dataset}/tags/{name}", status_code=204, responses=_WITHOUT_BODY)
    def untag(dataset: DatasetPath, name: str, datasets: Served, who: Known) -> None:
        """Remove a name."""
        who.dataset(datasets, dataset, "write").tag(name, None)


def _add_branches(app: FastAPI) -> None:
    base = "/v1/datasets/{dataset}/branches"

    @app.get(base)
    def branches(dataset: DatasetPath, datasets: Served, who: Known) -> list[str]:
        """Return the names of the branches that are neither published nor discarded."""
        return who.dataset(datasets, dataset, "read").branches()

    @app.post(base, status_code=204, responses=_WITHOUT_BODY)
    def branch(dataset: DatasetPath, body: BranchRequest, datasets: Served, who: Known) -> None:
        """Make a branch, unless it is open."""
        who.dataset(datasets, dataset, "write").branch(body.name)

    @app.post(base + "/{name}:publish")
    def publish(dataset: DatasetPath, name: str, datasets: Served, who: Known) -> CommitsModel:
        """Let all training sets pick the commits of a branch."""
        return CommitsModel(commits=who.dataset(datasets, dataset, "write").publish(name))

    @app.delete(base + "/{name}", status_code=204, responses=_WITHOUT_BODY)
    def discard(dataset: DatasetPath, name: str, datasets: Served, who: Known) -> None:
        """End a branch without its commits."""
        who.dataset(datasets, dataset, "write").discard(name)


def _add_training_sets(app: FastAPI) -> None:
    base = "/v1/datasets/{dataset}/training-sets"

    @app.post(base, status_code=202)
    def prepare(
        dataset: DatasetPath, body: PrepareRequest, datasets: Served, who: Known
    ) -> TrainingSetModel:
        """Pick commits, start to make a training set from them, and respond at once."""
        made = who.dataset(datasets, dataset, "write").prepare(
            body.commit, body.tags, body.form, body.options, branch=body.branch
        )
        return TrainingSetModel.of(made)

    @app.get(base)
    def training_sets(dataset: DatasetPath, datasets: Served, who: Known) -> TrainingSetsModel:
        """Return the requested training sets, in the order of the requests."""
        found = who.dataset(datasets, dataset, "read").training_sets()
        return TrainingSetsModel(training_sets=[TrainingSetModel.of(one) for one in found])

    @app.get(base + "/{version_hash}")
    async def fetch(
        dataset: DatasetPath,
        version_hash: str,
        datasets: Served,
        who: Known,
        wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S)] = 0,
    ) -> TrainingSetModel:
        """Return the state of a training set. While it is RUNNING, wait up to `wait` seconds."""
        from anyio import sleep

        found = await run_in_threadpool(who.dataset, datasets, dataset, "read")
        until = REAL.monotonic_s() + wait
        pause, longest = _PAUSES_S
        while True:
            made = await run_in_threadpool(found.fetch, version_hash)
            left = until - REAL.monotonic_s()
            if made.state != "RUNNING" or left <= 0:
                return TrainingSetModel.of(made)
            await sleep(min(pause, left))
            pause = min(2 * pause, longest)

    @app.get(base + "/{version_hash}/provenance")
    def provenance(made: Made) -> Graph:
        """Return the lineage of a training set: its commits and their inputs."""
        return made.provenance()

    @app.get(base + "/{version_hash}/parts/{name:path}", response_class=Response, responses=_BYTES)
    def part(name: str, made: Made, answer: Answer) -> Response:
        """Return the bytes of a part, or the range of the header Range."""
        return answer(_part(made, name))

    @app.get(base + "/{version_hash}/contents/{digest}", response_class=Response, responses=_BYTES)
    def content(digest: str, made: Made, answer: Answer) -> Response:
        """Return the content with this SHA-256, to which `uri` of a row in `parquet` refers."""
        return answer(made.content(digest))

    @app.get(base + "/{version_hash}/export/{form}", response_class=Response, responses=_BYTES)
    def export(form: str, made: Made) -> Response:
        """Return all examples as one file: `webdataset` (a tar) or `tfrecord`."""
        chunks = made.stream(form)
        return export_answer(chunks, app.state.exports, STREAMED[form])


def _part(made: TrainingSet, name: str) -> Any:
    for one in made.parts:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in made.parts[:10])
    raise NotFoundError(
        reason=f"the training set {made.version_hash} is {made.state} and has no part {name!r}",
        remedy=f"Choose from {known}" if known else "Prepare it first: it has no parts yet",
    )


def _program(run: str | Sequence[str]) -> str | tuple[str, ...]:
    return run if isinstance(run, str) else tuple(run)


def _add_steps(app: FastAPI, programs: Sequence[str | tuple[str, ...]]) -> None:
    @app.get("/v1/steps")
    def steps(datasets: Served, who: Known) -> StepsModel:
        """Return the steps of data sets that the sender may read, with what they did last."""
        who.require("read")
        return StepsModel(steps=[*who.steps(datasets)])

    @app.post("/v1/steps", status_code=201)
    def on_commit(body: StepRequest, datasets: Served, who: Known) -> Step:
        """Add a step with a program that the server allows; `run-steps` runs it."""
        given = who.for_step(datasets, body.input, "read")
        who.for_step(datasets, body.into, "write")
        run = _program(body.run)
        if run not in programs:
            raise AccessError(
                is_known=True,
                reason=f"the server allows no step to run {body.run!r}",
                remedy="Let its operator name the program: --program",
            )
        return who.acting(datasets).on_commit(
            given,
            run=run,
            into=body.into,
            rows=body.rows,
            type=body.type,
            name=body.name,
        )

    @app.delete("/v1/steps/{name}", status_code=204, responses=_WITHOUT_BODY)
    def remove_step(name: str, datasets: Served, who: Known) -> None:
        """Remove a step; the data set that it made stays."""
        who.require("write")
        found = next((one for one in who.steps(datasets) if one.name == name), None)
        if found is not None:
            who.require_remove(datasets, found)
            who.acting(datasets).remove_step(name)
            return
        raise NotFoundError(
            reason=f"there is no step {name[:100]!r}, or the token does not allow it"
        )


def _add_rest(app: FastAPI) -> None:
    @app.get("/v1/health")
    def health(datasets: Served) -> HealthModel:
        """Check that the server responds and can read its folder."""
        datasets.recorded("")  # This reads only the ledger.
        return HealthModel(status="ok", version=__version__)

    @app.get("/v1/audit")
    def audit(datasets: Served, who: Known) -> AuditModel:
        """Return the changes of the data sets that the sender may read, in the order of time."""
        who.require("read")
        return AuditModel.model_validate({"changes": who.changes(datasets)})

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def page(datasets: Served, who: Known) -> HTMLResponse:
        found, _ = who.page(datasets, 1000)
        sets: dict[str, list[TrainingSet]] = {}
        for one in found:
            with suppress(*DAMAGED):  # The page has the others, and `page_of` tells which it lacks.
                sets[one.uuid] = datasets.dataset(one.uuid).training_sets()
        return HTMLResponse(page_of(found, sets), headers=_PAGE_HEADERS)


_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
