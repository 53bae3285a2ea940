"""Calls in a forked process, which may crash, hang or use too much memory without harm to the caller."""

import json
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graftseg.core.errors import UserError
from graftseg.data.formats import decoder

MIB = 2**20


@dataclass(frozen=True)
class Ending:
    """How a call ended: ``ok``, ``user error``, ``traceback``, ``killed`` (by a signal) or ``too slow``.

    ``detail`` is the returned value as JSON, the error code, the traceback or the signal. ``mib`` is the growth of the
    peak memory, plus the peak memory of the largest process that the call started.
    """

    kind: str
    detail: Any
    seconds: float
    mib: float

    @property
    def is_clean(self) -> bool:
        """Whether the call returned or raised a UserError."""
        return self.kind in ("ok", "user error")


def isolated(call: Callable[[], Any], *, seconds: float = 60.0, mib: float | None = None) -> Ending:
    """Run ``call`` in a forked process with limits on its time and, if given, on the memory it may add."""
    reader, writer = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run(call, writer, mib)
    os.close(writer)
    is_slow = _timed_out(reader, child, seconds)
    with os.fdopen(reader, "rb") as stream:
        content = stream.read()
    _, status = os.waitpid(child, 0)
    took = time.monotonic() - began
    if is_slow:
        return Ending("too slow", f"more than {seconds:g} s", took, 0.0)
    if os.WIFSIGNALED(status) or not content:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return Ending("killed", signal.Signals(number).name if number else "no result", took, 0.0)
    kind, detail, grown = json.loads(content)
    return Ending(kind, detail, took, grown)


def _timed_out(reader: int, child: int, seconds: float) -> bool:
    """Wait for a result. After ``seconds``, kill the child and return True."""
    import select

    if select.select([reader], [], [], seconds)[0]:
        return False
    os.kill(child, signal.SIGKILL)
    return True


def _run(call: Callable[[], Any], writer: int, mib: float | None) -> None:
    """Run the call, write its ending to the pipe and end this process."""
    before = _peak_mib()
    if mib is not None:
        _limit_memory(mib)
    try:
        ending = ("ok", call())
    except UserError as error:
        ending = ("user error", error.code.name)
    except BaseException:
        ending = ("traceback", traceback.format_exc()[-1500:])
    decoder._child.stop()  # only the memory of processes that have ended is known
    os.write(writer, json.dumps((*ending, _peak_mib() - before), default=str).encode()[:60_000])
    os._exit(0)


def _limit_memory(mib: float) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + int(mib * MIB), resource.RLIM_INFINITY))


def _peak_mib() -> float:
    """Return the peak memory of this process, plus that of the largest child process that has ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_maxrss for usage in usages) / 1024
