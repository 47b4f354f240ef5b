"""The gRPC service for data management of MiniAutoML, over a folder of data sets (rule DST-66)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from txlog.base.errors import InvalidInputError, TxlogError, in_callers_words
from txlog.base.moments import moment_text
from txlog.base.texts import number_or_name
from txlog.training.datasets.dataset import Dataset
from txlog.training.datasets.folder import Datasets
from txlog.training.datasets.training_set import TrainingSet
from txlog.training.datasets.values import Commit, Summary
from txlog.training.service.auth import Authenticator, Everybody, Principal, Right, require_guarded
from txlog.training.service.messages import messages, pool
from txlog.training.service.problems import status_of, text_of

FORM = "csv"  # The form whose parts have the names that MiniAutoML gives them.
# The types by number.
TYPES = ("GENERIC", "TEXT_INTENT", "IMAGE_CLASS", "TABLE", "AUDIO", "VIDEO")
_STATES = {"RUNNING": 0, "READY": 1, "FAILED": 2}
_THREADS = 16
_LOG = logging.getLogger("txlog.serve")


@in_callers_words
def create_server(
    datasets: Datasets, authenticator: Authenticator | None = None, *, address: str
) -> tuple[grpc.Server, int]:
    """Return a server that is not started yet, and its port.

    It offers reflection, so that `grpcurl` needs no file, and health checks.

    Parameters
    ----------
    authenticator
        The rights of callers, by the metadata `authorization: Bearer <token>`. None: all rights for
        everybody.
    address
        For example `127.0.0.1:51001`; port 0 means any free port.

    Raises
    ------
    InvalidInputError
        The address cannot be bound; there are no tokens and it is not a loopback address; there are
        tokens, and the folder has no list of sources.
    """
    require_guarded(address.rpartition(":")[0], authenticator, datasets)
    server = grpc.server(
        ThreadPoolExecutor(_THREADS, thread_name_prefix="txlog-grpc"),
        options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 1 << 20)],
    )
    service = messages().service
    methods = _Methods(datasets, authenticator or Everybody())
    handlers = {one.name: _handler(methods, one) for one in service.methods}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service.full_name, handlers),)
    )
    known = health.HealthServicer()
    for name in ("", service.full_name):
        known.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(known, server)
    names = (service.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server, pool=pool())
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise InvalidInputError(
            argument="address",
            reason=f"{address} cannot be bound",
            remedy="Choose another port; another server may have this one",
        ) from error
    return server, port


def _handler(methods: _Methods, method: Any) -> Any:
    taken = getattr(messages(), method.input_type.name)
    call: Callable[[Principal, Any], Any] = getattr(methods, method.name)
    make = (
        grpc.unary_stream_rpc_method_handler
        if method.server_streaming
        else grpc.unary_unary_rpc_method_handler
    )

    def one(request: Any, context: grpc.ServicerContext) -> Any:
        return _answered(lambda: call(methods.who(context), request), context)

    def many(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield from _answered(lambda: [*call(methods.who(context), request)], context)

    return make(
        many if method.server_streaming else one,
        request_deserializer=taken.FromString,
        response_serializer=lambda answer: answer.SerializeToString(),
    )


def _answered(call: Callable[[], Any], context: grpc.ServicerContext) -> Any:
    """Return the result of a call; its errors become statuses."""
    try:
        return call()
    except TxlogError as error:
        status, name = status_of(error)
        if status >= 500:
            _LOG.error("%s", error, exc_info=error)
        context.set_trailing_metadata((("txlog-code", error.code),))
        context.abort(getattr(grpc.StatusCode, name), text_of(error, lambda _: None))
    except Exception as error:
        _LOG.error("internal error", exc_info=error)
        context.abort(
            grpc.StatusCode.INTERNAL, "an internal error; the server's log has the details"
        )


class _Methods:
    """The service's methods: each gets a request and returns the response."""

    def __init__(self, datasets: Datasets, authenticator: Authenticator) -> None:
        self._datasets = datasets
        self._authenticator = authenticator

    def who(self, context: grpc.ServicerContext) -> Principal:
        """Return the sender of a request; errors as for `Authenticator`."""
        given = dict(context.invocation_metadata()).get("authorization", "")
        kind, _, token = str(given).partition(" ")
        known = self._authenticator.authenticate(token if kind.lower() == "bearer" else None)
        return replace(known, client="gRPC")

    def CreateDataset(self, who: Principal, request: Any) -> Any:  # noqa: N802 (The file's name.)
        who.require_create(request.name)
        made = who.acting(self._datasets).create(
            request.name,
            _type_name(request.dataset_type),
            _source(request),
            description=request.description or None,
            tags=_tags(request.tags),
        )
        return _summary(made.summary())

    def UpdateDataset(self, who: Principal, request: Any) -> Any:  # noqa: N802
        found = self._dataset(who, request.dataset_id, "write")
        found.update(_source(request), request.commit_message, _tags(request.tags))
        return _summary(found.summary())

    def GetDatasetSummary(self, who: Principal, request: Any) -> Any:  # noqa: N802
        return _summary(self._dataset(who, request.dataset_id, "read").summary())

    def ListDatasets(self, who: Principal, request: Any) -> Iterator[Any]:  # noqa: N802
        page, _ = who.page(self._datasets, request.limit or 100, request.index or None)
        yield from map(_summary, page)

    def PrepareTrainingDataset(self, who: Principal, request: Any) -> Any:  # noqa: N802
        found = self._dataset(who, request.dataset_id, "write")
        commit = _number("commit_id", request.commit_id) if request.commit_id else None
        made = found.prepare(
            commit,
            _tags(request.tags),
            FORM,
            where=request.where or None,
            branch=request.branch or None,
        )
        head = _head(found.summary())
        return messages().SnapshotVersion(
            **head, version_hash=made.version_hash, commits=[_commit(c, made) for c in made.commits]
        )

    def FetchTrainingDataset(self, who: Principal, request: Any) -> Any:  # noqa: N802
        found = self._dataset(who, request.dataset_id, "read")
        made = found.fetch(request.version_hash)
        root = self._datasets.root
        statistics = {name: str(value) for name, value in made.statistics.items()}
        if made.error is not None:  # The message of MiniAutoML has no field for it.
            statistics["error"] = f"[{made.error.code}] {made.error.text}"
        return messages().VersionedSnapshot(
            dataset_id=str(made.dataset_id),
            version_hash=made.version_hash,
            state=_STATES[made.state],
            parts=[
                messages().FileInfo(
                    name=part.name, bucket=root, path=part.uri.removeprefix(root).lstrip("/")
                )
                for part in made.parts
            ],
            root=(made.root or "").removeprefix(root).lstrip("/"),
            statistics=statistics,
        )

    def DeleteDataset(self, who: Principal, request: Any) -> Any:  # noqa: N802
        found = self._dataset(who, request.dataset_id, "admin")
        found.delete()
        return _summary(found.summary())

    def _dataset(self, who: Principal, wanted: str, right: Right) -> Dataset:
        _number("dataset_id", wanted)
        return who.dataset(self._datasets, wanted, right)


def _number(argument: str, text: str) -> int:
    number = number_or_name(text)
    if not isinstance(number, int):
        raise InvalidInputError(argument=argument, reason=f"expected a number, not {text[:100]!r}")
    return number


def _type_name(number: int) -> str:
    if not 0 <= number < len(TYPES):
        raise InvalidInputError(argument="dataset_type", reason=f"there is no type {number}")
    return TYPES[number]


def _source(request: Any) -> str:
    """Return a source in the form of the list of sources: the bucket is the name of a place."""
    if not request.path:
        raise InvalidInputError(argument="path", reason="expected the path of the data")
    return f"{request.bucket}/{request.path}" if request.bucket else str(request.path)


def _tags(tags: Iterable[Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for tag in tags:
        if tag.tag_key in found:
            raise InvalidInputError(argument="tags", reason=f"{tag.tag_key!r} is given twice")
        found[tag.tag_key] = tag.tag_value
    return found


def _moment(ms: int) -> str:
    return moment_text(ms, separator="T")


def _head(summary: Summary) -> dict[str, Any]:
    known = summary.type in TYPES
    return {
        "dataset_id": str(summary.dataset_id),
        "name": summary.name,
        "description": summary.description or "",
        "dataset_type": TYPES.index(summary.type) if known else 0,
        "last_updated_at": _moment(summary.last_updated_ms),
    }


def _summary(summary: Summary) -> Any:
    return messages().DatasetSummary(
        **_head(summary), commits=[_commit(c, summary) for c in summary.commits if c.branch is None]
    )


def _commit(commit: Commit, of: Summary | TrainingSet) -> Any:
    return messages().CommitInfo(
        dataset_id=str(of.dataset_id),
        commit_id=str(commit.commit_id),
        created_at=_moment(commit.created_ms),
        commit_message=commit.message,
        tags=[messages().Tag(tag_key=k, tag_value=v) for k, v in commit.tags.items()],
        path=f"data/{commit.dataset}/commit_id={commit.commit_id}",
        statistics={name: str(value) for name, value in commit.statistics.items()},
    )
