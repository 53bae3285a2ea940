"""Port and token of the last server, so that an open page works again after the server was restarted."""

import json
import os
from pathlib import Path
from socket import socket

from pydantic import BaseModel, Field, ValidationError

from graftseg.core.errors import UserError
from graftseg.core.files import write_errors
from graftseg.reporting.viewer.access import Access
from graftseg.reporting.viewer.launch import bind


class _Address(BaseModel):
    port: int = Field(ge=1, le=65535)
    token: str = Field(min_length=32, max_length=100)


def remembered_address(path: Path, port: int) -> tuple[Access, socket]:
    """Return the access and the socket of a server. Port 0 uses the last port again if it is free.

    Only the owner can read the file with the token.
    """
    last = _read(path)
    bound = _bind_again(last, port)
    number = bound.getsockname()[1]
    access = Access(number, last.token) if last is not None and last.port == number else Access(number)
    _write(path, {"port": number, "token": access.token})
    return access, bound


def _bind_again(last: _Address | None, port: int) -> socket:
    if port or last is None:
        return bind(port)
    try:
        return bind(last.port)
    except UserError:
        return bind(0)


def _read(path: Path) -> _Address | None:
    try:
        return _Address.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _write(path: Path, content: dict[str, object]) -> None:
    with write_errors(path):
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            json.dump(content, stream)
