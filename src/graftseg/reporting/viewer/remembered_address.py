"""Port and token of the last server, so that an open page works again after the server was restarted."""

import json
import os
from pathlib import Path
from socket import socket

from pydantic import BaseModel, Field, ValidationError

from graftseg.core.errors import UserError
from graftseg.core.files import write_errors
from graftseg.core.reading import read_bytes
from graftseg.reporting.viewer.access import Access
from graftseg.reporting.viewer.launch import listen


class _Address(BaseModel):
    port: int = Field(ge=1, le=65535)
    token: str = Field(min_length=32, max_length=100)


def remembered_address(path: Path, port: int) -> tuple[Access, socket]:
    """Return the access and the socket of a server. Port 0 uses the last port again, or a free port if it is in use.

    The file ``path`` stores the address. Only its owner can read it, because it contains the token.
    """
    last = _read(path)
    listener = _listen_again(last, port)
    used_port = listener.getsockname()[1]
    access = Access(used_port, last.token) if last is not None and last.port == used_port else Access(used_port)
    _write(path, {"port": used_port, "token": access.token})
    return access, listener


def _listen_again(last: _Address | None, port: int) -> socket:
    if port or last is None:
        return listen(port)
    try:
        return listen(last.port)
    except UserError:
        return listen(0)


def _read(path: Path) -> _Address | None:
    try:
        return _Address.model_validate_json(read_bytes(path, 4096))
    except (OSError, ValidationError):
        return None


def _write(path: Path, content: dict[str, object]) -> None:
    with write_errors(path):
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            json.dump(content, stream)
