"""A headless Chromium, controlled over two pipes by its own protocol, without a package.

The protocol is described at https://chromedevtools.github.io/devtools-protocol/.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
]  # fmt: skip


class Browser:
    """One page of a browser."""

    def __init__(self, send: int, receive: int) -> None:
        self._send = send
        self._receive = receive
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for room in ("Page", "Runtime", "Log"):
            self.call(f"{room}.enable")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select([self._receive], [], [], 120)[0], "the browser does not answer"
            data = os.read(self._receive, 1 << 20)
            if not data:
                raise EOFError("the browser is gone")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        if "method" in found:
            self.events.append(found)
        return found

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its answer."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._send, data) :]
        while (found := self._next()).get("id") != number:
            pass
        assert "error" not in found, (method, found["error"])
        result: dict[str, Any] = found["result"]
        return result

    def go(self, url: str) -> None:
        """Open a page, and return when it is loaded."""
        self.events.clear()
        told = self.call("Page.navigate", url=url)
        assert "errorText" not in told, told
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._next()

    def js(self, expression: str) -> Any:
        """Return the value of an expression; a promise is awaited."""
        told = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def show(self, width: int, height: int, scheme: str = "light") -> None:
        """Set the size of the window in pixels, and whether it is light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def press(self, key: str) -> None:
        """Press a key."""
        codes = {"Tab": 9, "Enter": 13}
        told = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **told, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def complaints(self) -> list[str]:
        """Return the messages of the open page in the console and the log."""
        found = []
        for event in self.events:
            if event["method"] == "Log.entryAdded":
                found.append(event["params"]["entry"]["text"])
            elif event["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                found.append(json.dumps(event["params"]))
        return found

    def screenshot(self, path: Path) -> None:
        """Write what the window shows to a PNG."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """Run `txlog ui` for a folder, and yield the address that opens it, with its token."""
    command = [sys.executable, "-m", "txlog", "ui", str(folder), "--port", "0", "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            told = ""
            while "}" not in told and (line := server.stdout.readline()):
                told += line
            yield str(json.loads(told)["url"])
        finally:
            server.terminate()


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start a browser with a fresh profile, and end it with the block."""
    assert CHROMIUM is not None
    to_browser, from_us = os.pipe()
    from_browser, to_us = os.pipe()
    # It reads from descriptor 3 and writes to 4.
    put = (
        "import os, sys; a, b = map(os.dup, map(int, sys.argv[1:3])); os.dup2(a, 3); os.dup2(b, 4);"
        "[os.set_inheritable(n, True) for n in (3, 4)]; os.execv(sys.argv[3], sys.argv[3:])"
    )
    command = [sys.executable, "-S", "-c", put, str(to_browser), str(to_us), CHROMIUM, *FLAGS]
    process = subprocess.Popen(
        [*command, f"--user-data-dir={profile}"],
        pass_fds=(to_browser, to_us), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_browser)
    os.close(to_us)
    try:
        yield Browser(from_us, from_browser)
    finally:
        process.terminate()
        process.wait(30)
        os.close(from_us)
        os.close(from_browser)
