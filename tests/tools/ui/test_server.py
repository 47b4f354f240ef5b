"""The server of the pages as a process: its port, its address, and its end."""

import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from threading import Thread
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

import pyarrow as pa
import pytest

import txlog
from txlog.tools.ui.places import place_of
from txlog.tools.ui.server import HOST, listening

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("vl_convert")

SLOW = """
    import sys, threading
    from txlog.tools.ui import pages, server

    def wait(visit):
        print("began", flush=True)
        threading.Event().wait()

    pages.overview = wait
    tell = lambda url, *counts: print(url, flush=True)
    server.chart_library = str
    server.serve(sys.argv[1:], port=0, opens=False, tell=tell)
"""


def test_a_port_that_is_taken_is_an_error() -> None:
    with listening(0) as held:
        port = held.getsockname()[1]
        assert held.getsockname()[0] == HOST
        with pytest.raises(txlog.InvalidInputError, match=f"port {port} cannot be used.*--port 0"):
            listening(port)
    for wrong in (-1, 65_536):
        with pytest.raises(txlog.InvalidInputError, match="is not a port"):
            listening(wrong)


@pytest.mark.slow
def test_ctrl_c_ends_it_while_a_page_is_made(tmp_path: Path) -> None:
    table = txlog.write(tmp_path / "t", pa.table({"n": [1]}))
    command = [sys.executable, "-c", textwrap.dedent(SLOW), table.uri]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stderr is not None
            url = server.stdout.readline().strip()
            opener = build_opener(ProxyHandler({}), HTTPCookieProcessor())
            opener.open(url, timeout=60).close()
            page = f"{url.partition('?')[0]}tables/{place_of(table.uri, '').key}"

            def visit() -> None:
                with suppress(OSError):  # The server goes away meanwhile.
                    opener.open(page, timeout=60)

            visitor = Thread(target=visit)
            visitor.start()
            assert server.stdout.readline() == "began\n"
            server.send_signal(signal.SIGINT)
            assert (server.wait(60), server.stderr.read()) == (130, "")
            visitor.join(60)
        finally:
            server.kill()
