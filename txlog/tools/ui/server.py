"""The server of the pages. It listens only on the loopback address, until Ctrl-C ends it."""

from __future__ import annotations

import os
import socket
import webbrowser
from collections.abc import Callable, Sequence
from secrets import token_urlsafe
from threading import Thread, Timer
from types import FrameType

from txlog import Catalog
from txlog.base.errors import InvalidInputError, not_installed
from txlog.tools.report.page import chart_library
from txlog.tools.ui.places import Places

HOST = "127.0.0.1"
_PATIENCE_S = 1.0  # After Ctrl-C, pages have this time to finish, in seconds.


def serve(
    uris: Sequence[str],
    *,
    catalog: Catalog | None = None,
    port: int,
    writes: bool = False,
    opens: bool = True,
    tell: Callable[[str, int, int], None],
) -> None:
    """Show pages of tables and data sets to browsers on this machine, until Ctrl-C.

    Ctrl-C ends the process even if a page is not finished. No table is left half-written.

    Parameters
    ----------
    uris
        Tables, folders of data sets, and folders that contain them at any depth.
    catalog
        Its tables are shown, too, by their names.
    port
        0: any free port.
    writes
        Offer forms that create and delete pins.
    opens
        Open the first page in the user's browser.
    tell
        Called when the server listens, with the address of the first page, which contains the
        token, and with the numbers of tables and of folders of data sets.

    Raises
    ------
    NotFoundError
        At one of the URIs and below it, there is neither a table nor a folder of data sets.
    InvalidInputError
        The port is taken or not valid.
    UnsupportedFeatureError
        The extra `ui` is not installed.
    KeyboardInterrupt
        Ctrl-C ended it.
    """
    try:
        import uvicorn

        from txlog.tools.ui.app import make_app
    except ImportError as error:
        reason = f"the pages need the package {error.name}"
        raise not_installed("ui", "ui", reason) from error
    places = Places(uris, catalog)
    count = len(places.find_all())
    with listening(port) as listener:
        token = token_urlsafe(32)
        own_port = listener.getsockname()[1]
        url = f"http://{HOST}:{own_port}/?token={token}"
        app = make_app(places, token, own_port, writes=writes)
        config = uvicorn.Config(
            app,
            log_level="error", access_log=False, lifespan="off", ws="none", server_header=False,
        )  # fmt: skip

        class Server(uvicorn.Server):
            """A server that waits at most `_PATIENCE_S` for pages after a signal."""

            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                super().handle_exit(sig, frame)
                # A thread cannot be stopped, and Python would wait for it.
                late = Timer(_PATIENCE_S, os._exit, (128 + sig,))
                late.daemon = True
                late.start()

        # It takes seconds to load. Without the thread, the first page with charts would wait.
        Thread(target=chart_library, daemon=True).start()
        tell(url, count, len(places.folders))
        if opens:
            Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        Server(config).run(sockets=[listener])


def listening(port: int) -> socket.socket:
    """Return a socket that accepts connections from this machine.

    Raises
    ------
    InvalidInputError
        The port is taken or not valid.
    """
    if not 0 <= port <= 65535:
        raise InvalidInputError(
            argument="port", reason=f"{port} is not a port", remedy="Choose one up to 65535"
        )
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
        made.listen(128)
    except OSError as error:
        made.close()
        raise InvalidInputError(
            argument="port",
            reason=f"port {port} cannot be used: {error.strerror}",
            remedy="Choose another one; --port 0 uses any free port",
        ) from error
    return made
