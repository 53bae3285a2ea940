"""Start the viewer: choose a port, print the address, open the browser, and serve until Ctrl-C."""

import logging
import signal
import socket
import webbrowser
from collections.abc import Callable
from threading import Thread, Timer
from time import sleep
from urllib.parse import quote

import uvicorn
from starlette.types import ASGIApp

from graftseg.core.errors import Code, UserError
from graftseg.reporting.viewer.access import Access
from graftseg.reporting.viewer.server import STATIC

LOOPBACK = "127.0.0.1"
BUILD_REMEDY = "run make web in a clone of graftseg, or install graftseg again with access to the internet"


def require_front_end() -> None:
    """Raise a UserError if the front end has not been built."""
    if not (STATIC / "index.html").is_file():
        raise UserError(Code.FILE_MISSING, "the viewer", "its web page has not been built", BUILD_REMEDY)


def listen(port: int) -> socket.socket:
    """Return a listening socket on the loopback interface. Port 0 chooses a free port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen()
    except OSError as error:
        listener.close()
        finding = f"the port cannot be used ({error.strerror})"
        raise UserError(Code.OPTION_INVALID, f"--port {port}", finding, "choose another port or omit --port") from None
    return listener


def serve(
    app: ASGIApp,
    listener: socket.socket,
    access: Access,
    print_address: Callable[[str], None],
    *,
    case: str,
    browser: bool,
    should_stop: Callable[[], bool] | None = None,
) -> None:
    """Serve an application until Ctrl-C, or until ``should_stop`` returns true. ``case`` is shown first."""
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", server_header=False, timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)

    def stop(number: int, frame: object) -> None:
        server.should_exit = True

    # Ctrl-C is the usual end and not an error, even before uvicorn installs its own handler
    signal.signal(signal.SIGINT, stop)
    address = access.url + (f"&case={quote(case)}" if case else "")
    print_address(address)
    if browser:
        timer = Timer(0.5, webbrowser.open, [address])
        timer.daemon = True
        timer.start()
    if should_stop is not None:
        Thread(target=_stop_when, args=(server, should_stop), daemon=True).start()
    with listener:
        server.run(sockets=[listener])


def _stop_when(server: uvicorn.Server, should_stop: Callable[[], bool]) -> None:
    while not should_stop():
        sleep(1.0)
    server.should_exit = True
