"""A service for the data sets of a folder: an HTTP server and client, and a gRPC server.

    from txlog.serve import connect

    intents = connect("http://127.0.0.1:6000").dataset("intents")
    made = intents.fetch(intents.prepare().version_hash, wait_s=60)

`txlog datasets serve FOLDER` or `serve(Catalog(folder))` starts a server. The gRPC methods are the
ones of MiniAutoML's data management. The extra `serve` has FastAPI, uvicorn and httpx; the extra
`grpc` has gRPC. Rules: spec/datasets.md, DST-60 to DST-66.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from txlog.base.lazy import lazy_names

if TYPE_CHECKING:
    from txlog.serve.app import create_app
    from txlog.serve.auth import AccessError, Authenticator, Principal, TokenFile
    from txlog.serve.client import RemoteCatalog, RemoteDataset, connect
    from txlog.serve.rpc import create_server
    from txlog.serve.run import serve

__all__ = [
    "AccessError",
    "Authenticator",
    "Principal",
    "RemoteCatalog",
    "RemoteDataset",
    "TokenFile",
    "connect",
    "create_app",
    "create_server",
    "serve",
]

_HOMES = {
    "AccessError": "auth",
    "Authenticator": "auth",
    "Principal": "auth",
    "RemoteCatalog": "client",
    "RemoteDataset": "client",
    "TokenFile": "auth",
    "connect": "client",
    "create_app": "app",
    "create_server": "rpc",
    "serve": "run",
}

_find, __dir__ = lazy_names(__name__, _HOMES, __all__)


def __getattr__(name: str) -> Any:
    try:
        return _find(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("txlog"):
            raise
        from txlog.base.errors import not_installed

        extra = "grpc" if _HOMES[name] == "rpc" else "serve"
        raise not_installed(extra, "the service of data sets", str(error)) from error
