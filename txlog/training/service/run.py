"""Run the HTTP server, and optionally the gRPC server, until a signal ends the process."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

from txlog.base.errors import InvalidInputError, in_callers_words
from txlog.training.datasets.folder import Datasets
from txlog.training.service.auth import Authenticator, TokenFile, require_guarded
from txlog.training.service.extra import needing

SWEEP_S = 60.0
HTTP_PORT, GRPC_PORT = 6000, 51001
_LOG = logging.getLogger("txlog.serve")


@in_callers_words
def serve(
    datasets: Datasets,
    *,
    host: str = "127.0.0.1",
    port: int = HTTP_PORT,
    grpc_port: int | None = None,
    tokens: str | os.PathLike[str] | Authenticator | None = None,
    programs: Sequence[str | Sequence[str]] = (),
    ready: Callable[[str, str | None], object] | None = None,
    **uvicorn_options: Any,
) -> None:
    """Serve data sets over HTTP, and over gRPC if it has a port, until a signal ends the process.

    Once a minute, the server makes the training sets whose workers died, and finishes purges.

    Parameters
    ----------
    port
        0 means any free port.
    tokens
        A file of tokens for `TokenFile`, or an `Authenticator`. None: everybody has all rights, and
        only loopback addresses are allowed.
    programs
        The programs that steps of requests may run; as for `create_app`.
    ready
        Called with the HTTP address, and the gRPC address or None, when both respond.
    uvicorn_options
        Options of `uvicorn.Config`, such as `ssl_certfile` and `ssl_keyfile`. The gRPC server does
        not encrypt: put a proxy in front of it.

    Raises
    ------
    InvalidInputError
        There are no tokens and the host is not a loopback address, there are tokens and no list of
        sources, or a port is taken.
    UnsupportedFeatureError
        The extra `serve`, or `grpc`, is not installed.
    """
    authenticator = TokenFile(tokens) if isinstance(tokens, str | os.PathLike) else tokens
    require_guarded(host, authenticator, datasets)
    with needing("serve"):
        import uvicorn

        from txlog.training.service.app import create_app

    socket = _bound(host, port)
    config = uvicorn.Config(
        create_app(datasets, authenticator, hosts=[host], programs=programs),
        **{"log_level": "warning", "lifespan": "off", "server_header": False, **uvicorn_options},
    )
    server = uvicorn.Server(config)
    with socket, _grpc(datasets, authenticator, host, grpc_port) as grpc_address, _swept(datasets):
        address = f"http://{_shown(host)}:{socket.getsockname()[1]}"
        if ready is not None:
            ready(address, grpc_address)
        with suppress(KeyboardInterrupt):  # uvicorn raises the signal again at its end.
            server.run(sockets=[socket])


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bound(host: str, port: int) -> Any:
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise InvalidInputError(
            argument="port",
            reason=f"{host}:{port} cannot be bound: {error}",
            remedy="Choose another port; another server may have this one",
        ) from error
    return made


@contextmanager
def _grpc(
    datasets: Datasets, authenticator: Authenticator | None, host: str, port: int | None
) -> Iterator[str | None]:
    if port is None:
        yield None
        return
    with needing("grpc"):
        from txlog.training.service.rpc import create_server

    server, bound = create_server(datasets, authenticator, address=f"{_shown(host)}:{port}")
    server.start()
    try:
        yield f"{_shown(host)}:{bound}"
    finally:
        server.stop(grace=5).wait()


@contextmanager
def _swept(datasets: Datasets) -> Iterator[None]:
    ended = Event()

    def sweep() -> None:
        while not ended.wait(SWEEP_S):
            try:
                datasets.sweep()
            except Exception as error:
                _LOG.warning("the sweep of the data sets failed", exc_info=error)

    thread = Thread(target=sweep, name="txlog-sweep", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
