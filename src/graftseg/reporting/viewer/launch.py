"""Start the viewer: choose or remember the port, print the address, open the browser, and serve until Ctrl-C."""

import json
import logging
import os
import signal
import socket
import webbrowser
from collections.abc import Callable
from pathlib import Path
from threading import Thread, Timer
from time import sleep
from urllib.parse import quote

import uvicorn
from pydantic import BaseModel, Field, ValidationError
from starlette.types import ASGIApp

from graftseg.core.errors import Code, UserError
from graftseg.core.files import write_errors
from graftseg.core.reading import read_bytes
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


class _Address(BaseModel):
    port: int = Field(ge=1, le=65535)
    token: str = Field(min_length=32, max_length=100)


def remembered_address(path: Path, port: int) -> tuple[Access, socket.socket]:
    """Return the access and the socket of a server. Port 0 uses the last port again, or a free port if it is in use.

    The file ``path`` stores port and token, so that an open page works again after the server was restarted. Only its
    owner can read it.
    """
    try:
        last = _Address.model_validate_json(read_bytes(path, 4096))
    except (OSError, ValidationError):
        last = None
    try:
        listener = listen(port or (last.port if last else 0))
    except UserError:
        if port:
            raise
        listener = listen(0)
    used_port = listener.getsockname()[1]
    access = Access(used_port, last.token) if last and last.port == used_port else Access(used_port)
    with write_errors(path):
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            json.dump({"port": used_port, "token": access.token}, stream)
    return access, listener


def serve(
    app: ASGIApp,
    listener: socket.socket,
    access: Access,
    print_address: Callable[[str], None],
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

        def wait() -> None:
            while not should_stop():
                sleep(1.0)
            server.should_exit = True

        Thread(target=wait, daemon=True).start()
    with listener:
        server.run(sockets=[listener])
