"""Two ranks of a real command: a signal stops them together, and a rank that hangs is replaced."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from rank_kills import command_for, ranks_of

from graftseg.core.errors import Code
from graftseg.core.torchrun import TIMEOUT_VARIABLE


def _started(command: list[str], run: Path) -> "subprocess.Popen[bytes]":
    """Start a training, and wait until it has made 40 steps."""
    process = subprocess.Popen([*command, "--out", str(run)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    log = run / "log.jsonl"
    while process.poll() is None and (not log.is_file() or log.read_bytes().count(b"\n") < 40):
        time.sleep(0.05)
    return process


@pytest.mark.slow
def test_stopped_and_hanging_ranks_end_with_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = command_for(tmp_path)
    subprocess.run([*command, "--out", str(tmp_path / "reference")], check=True, capture_output=True)
    weights = (tmp_path / "reference" / "model.safetensors").read_bytes()

    stopped = _started(command, tmp_path / "stopped")
    stopped.send_signal(signal.SIGINT)
    _, errors = stopped.communicate()
    assert (stopped.returncode, errors.count(b"\n")) == (130, 1) and f"[{Code.INTERRUPTED}]".encode() in errors
    subprocess.run([*command, "--out", str(tmp_path / "stopped"), "--resume"], check=True, capture_output=True)
    assert (tmp_path / "stopped" / "model.safetensors").read_bytes() == weights

    monkeypatch.setenv(TIMEOUT_VARIABLE, "10")
    hanging = _started(command, tmp_path / "hanging")
    os.kill(ranks_of(hanging.pid)[1], signal.SIGSTOP)
    _, errors = hanging.communicate()
    assert hanging.returncode == 0 and f"[{Code.RANK_LOST}]".encode() in errors
    assert (tmp_path / "hanging" / "model.safetensors").read_bytes() == weights
