"""Continue the training of a run with new labels, in a child process."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import DEVNULL, STDOUT
from threading import Lock, Thread
from time import monotonic
from typing import Any, Literal

from graftseg.core.files import check_target_file
from graftseg.core.phrases import as_sentence
from graftseg.core.reading import read_text
from graftseg.core.run_folder import RunFolder

SHOWN_LINES = 8


class Retraining:
    """The training that a button starts. Its output goes to ``log``. ``use`` gets the new run if it is not worse."""

    def __init__(self, run: RunFolder, data: Path, device: str, log: Path, use: Callable[[RunFolder], None]) -> None:
        self._run, self._log, self._use = run, log, use
        self._options = ["--data", str(data), "--device", device]
        self._state: Literal["idle", "running", "finished", "failed"] = "idle"
        self._began = self._ended = 0.0
        self._target: Path | None = None
        self._lock = Lock()

    def start(self) -> None:
        """Start the training, unless it is running."""
        with self._lock:
            if self._state == "running":
                return
            self._target = next_run(self._run.path)
            words = ["train", "--continue-from", str(self._run.path), *self._options, "--out", str(self._target)]
            command = [sys.executable, "-m", "graftseg", *words]
            check_target_file(self._log)
            with self._log.open("wb") as log:
                process = subprocess.Popen(command, stdin=DEVNULL, stdout=log, stderr=STDOUT)  # noqa: S603 - our own
            self._state, self._began = "running", monotonic()
        Thread(target=self._wait, args=(process, RunFolder(self._target)), daemon=True).start()

    def _wait(self, process: "subprocess.Popen[bytes]", run: RunFolder) -> None:
        code = process.wait()
        is_used = code == 0 and not is_worse(run)
        if is_used:
            self._use(run)
        with self._lock:
            self._state, self._ended = "finished" if code == 0 else "failed", monotonic()
            self._run = run if is_used else self._run

    def describe(self) -> dict[str, Any]:
        """Return the state, the last lines of output and the seconds so far."""
        with self._lock:
            end = monotonic() if self._state == "running" else self._ended
            lines = read_text(self._log, errors="replace").splitlines()[-SHOWN_LINES:] if self._state != "idle" else []
            facts: dict[str, Any] = {"state": self._state, "lines": lines, "seconds": round(end - self._began, 1)}
            if self._target is None or self._state != "finished":
                return facts | {"run": None, "summary": None}
            return facts | {"run": self._target.name, "summary": _summary(RunFolder(self._target))}


def next_run(path: Path) -> Path:
    """Return a free folder next to a run for its continuation: ``RUN-2``, ``RUN-3`` and so on."""
    stem, _, number = path.resolve().name.rpartition("-")
    name, first = (stem, int(number) + 1) if stem and number.isdecimal() else (path.resolve().name, 2)
    folder = path.resolve().parent
    return next(new for count in range(first, first + 10**6) if not (new := folder / f"{name}-{count}").exists())


def is_worse(run: RunFolder) -> bool:
    """Return whether the Dice on test or held-out scans is lower than before."""
    gain = run.manifest().get("gain")
    return gain is not None and gain["after"] is not None and gain["after"] < gain["before"]


def _summary(run: RunFolder) -> str | None:
    """Return a sentence on the gain of a continued run, if it is known."""
    if (gain := run.manifest().get("gain")) is None:
        return None
    return as_sentence(gain["sentence"]) + (" The page keeps the earlier network." if is_worse(run) else "")
