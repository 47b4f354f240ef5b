"""A Spark Connect server and a client of it, as separate processes."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent
CONNECT = ("grpc", "grpc_status", "google.rpc", "zstandard")  # Of the extra `connect`.


def _module(name: str) -> ModuleType:
    spec = spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TZ": "UTC",
    }


@dataclass
class Remote:
    """Runs functions in the client: they get its session, then the other arguments."""

    client: subprocess.Popen[bytes]
    log: Path  # What the server says.
    pipe: ModuleType

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        assert self.client.stdin is not None
        assert self.client.stdout is not None
        self.pipe.send(self.client.stdin, (function, arguments))
        answer = self.pipe.receive(self.client.stdout)
        assert answer is not None, "the client died; the server's log may say why"
        value, error = answer
        if error is not None:
            raise error
        return value


@pytest.fixture(scope="session")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    missing = [name for name in CONNECT if not _is_there(name)]
    if missing:
        pytest.skip(f"the extra `connect` is not installed: no {', '.join(missing)}")
    home = tmp_path_factory.mktemp("connect")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = home / "server.log"
    with (
        log.open("wb") as said,
        subprocess.Popen(
            [sys.executable, HERE / "connect_server.py", str(port), str(home)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env=_environment(),
        ) as server,
    ):  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        while (line := server.stdout.readline()).strip() != b"ready":
            assert line, log.read_text(errors="replace")[-4000:]
        with subprocess.Popen(
            [sys.executable, HERE / "connect_client.py", f"sc://127.0.0.1:{port}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=_environment(),
        ) as client:  # fmt: skip
            yield Remote(client, log, _module("connect_client"))
        server.stdin.close()
