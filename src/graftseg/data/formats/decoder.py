"""Decode compressed DICOM and TIFF pixels in a child process, because decoders may crash on damaged files.

One process is started on first use and answers all requests. If it ends during a request, the file is reported as
damaged, and the next request starts a new process.
"""

import atexit
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.data.formats.scan import refuse_bytes, refuse_memory

SECONDS, BYTES_PER_SECOND = 10, 10**6  # time limit of a request: SECONDS, plus decoding at the speed of slow RLE
_LOW_MEMORY = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
"""Environment variables that reduce the memory of the child process."""


class DecodingError(Exception):
    """An error of a decoder, with its message."""


class _Child:
    """The decoder process. ``process`` is None if it is not running."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, request: dict[str, Any], content: bytes) -> NDArray[Any]:
        """Return the answer to a request. Raise EOFError if the process ends, and DecodingError if decoding fails."""
        with self.lock:
            try:
                if self.process is not None and self.process.poll() is not None:
                    self.stop()  # it ended between two requests
                self.process = self.process or _start()
                return _exchange(self.process, request, content)
            except DecodingError:
                raise
            except BaseException as error:
                # after an interrupt, an unread reply may be in the pipe
                self.stop()
                if isinstance(error, (OSError, EOFError, ValueError)):
                    raise EOFError from None
                raise

    def stop(self) -> None:
        """End the process."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            for stream in (process.stdin, process.stdout):
                try:
                    stream.close()  # type: ignore[union-attr]
                except OSError:  # unsent bytes
                    continue
            process.wait()


_child = _Child()
atexit.register(lambda: _child.stop())


def _detach_after_fork() -> None:
    """Detach a forked process from the decoder and its pipes, which belong to the parent."""
    global _child
    if (process := _child.process) is not None:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (process.stdin, process.stdout):
            # closing a stream would send the bytes in its buffer
            os.dup2(null, stream.fileno(), inheritable=False)  # type: ignore[union-attr]
        os.close(null)
        process.returncode = 0  # the fork must not wait for the process
    _child = _Child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_detach_after_fork)


def decode(where: Path, decoder: str, needed: int, content: bytes = b"", **request: Any) -> NDArray[Any]:
    """Return the pixels of a file, decoded by ``pydicom``, ``gdcm`` or ``tifffile``. They need ``needed`` bytes."""
    refuse_bytes(where, needed)
    refuse_memory(where, needed)
    limits = {"bytes": needed, "seconds": SECONDS + needed // BYTES_PER_SECOND}
    try:
        return _child.ask(request | limits | {"decoder": decoder, "length": len(content)}, content)
    except EOFError:
        finding = "the pixels cannot be decoded (the decoder crashed, or needed too much time or memory)"
        raise UserError(Code.SCAN_DAMAGED, where, finding, "copy it again or export it uncompressed") from None


def _start() -> "subprocess.Popen[bytes]":
    child = Path(__file__).with_name("decoder_child.py")
    environment = os.environ | _LOW_MEMORY | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    # -P leaves the folder of the script out of sys.path, so that its modules cannot hide packages
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", str(child)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    if process.stdout is None or process.stdout.readline() != b"ready\n":
        process.kill()
        process.wait()
        raise EOFError
    return process


def _exchange(process: "subprocess.Popen[bytes]", request: dict[str, Any], content: bytes) -> NDArray[Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(request, default=str).encode() + b"\n")
    process.stdin.write(content)
    process.stdin.flush()
    if not (line := process.stdout.readline()):
        raise EOFError
    reply = json.loads(line)
    if reply.get("kind") == "MemoryError":
        raise EOFError
    if "error" in reply:
        raise DecodingError(reply["error"])
    array = np.empty(reply["shape"], reply["dtype"])
    if process.stdout.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:  # type: ignore[attr-defined]
        raise EOFError
    return array
