"""The address of a Ray cluster, and a check that the cluster answers. Ray itself would try to connect for minutes."""

import os
import re
import socket
import subprocess
import sys

from graftseg.core.errors import Code, UserError

ADDRESS_VARIABLE = "RAY_ADDRESS"
CLIENT = "ray://"
WITHOUT_PORT = ("local", "auto")
CONNECT_SECONDS = 10.0  # time limit for each answer of the server
HEALTH_SECONDS = 20.0  # time limit of the health check
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""First bytes of an HTTP/2 client, with an empty frame of settings. Ray's servers speak HTTP/2 (gRPC)."""
FRAME_HEADER, SETTINGS_FRAME = 9, 4
"""Length of the header of an HTTP/2 frame, and the type of the first frame that a server sends."""


def cluster_address(on: str) -> str:
    """Return the address for ``--on``. ``ray`` means ``RAY_ADDRESS`` or, if this is unset, a new ``local`` cluster."""
    address, where = on, f"--on {on}"
    if on == "ray":
        address = os.environ.get(ADDRESS_VARIABLE) or "local"
        where = f"{ADDRESS_VARIABLE}={address}"
    if address not in WITHOUT_PORT and not _has_port(address):
        remedy = "use HOST:PORT in RAY_ADDRESS" if on == "ray" else "use --on ray://HOST:PORT"
        raise UserError(Code.OPTION_INVALID, where, "not the address of a Ray cluster", remedy)
    return address


def _has_port(address: str) -> bool:
    match = re.fullmatch(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(\d{1,5})", address.removeprefix(CLIENT))
    return match is not None and 0 < int(match[1]) < 2**16


def check_cluster(address: str) -> None:
    """Raise an OSError if no Ray cluster answers at an address."""
    if address in WITHOUT_PORT:
        return
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    _greet(host.strip("[]"), int(port))
    if not address.startswith(CLIENT):
        _check_health(address)


def _greet(host: str, port: int) -> None:
    """Raise an OSError if no program listens at an address or, without TLS, if it does not speak HTTP/2."""
    with socket.create_connection((host, port), CONNECT_SECONDS) as connection:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return
        connection.sendall(GREETING)
        answer = connection.makefile("rb").read(FRAME_HEADER)
    if len(answer) < FRAME_HEADER or answer[3] != SETTINGS_FRAME:
        raise OSError("another program listens there")


def _check_health(address: str) -> None:
    """Raise an OSError if a cluster does not work. A child process asks, because Ray prints to the terminal."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        subprocess.run(  # noqa: S603 - our own command
            command, check=True, capture_output=True, timeout=HEALTH_SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"ray health-check gave no answer within {HEALTH_SECONDS:g} s") from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().split("\n")
        raise OSError(f"ray health-check: {lines[-1]}") from None
