"""Runs that are killed, stopped or started twice, as separate processes."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.run_folder import RunFolder, read_log
from graftseg.data.store import Store
from graftseg.training import stopping
from graftseg.training.stopping import collecting_stop_signals
from user_errors import user_error

STEPS = (30, 40)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree: dict[str, Any] = tiny.recipe_tree()
    for stage, steps in zip(tree["stages"], STEPS, strict=True):
        stage["steps"] = steps
    tree["loop"] |= {"checkpoint_every": 7, "log_every": 1}
    path = tmp_path_factory.mktemp("recipes") / "tiny.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


@pytest.fixture(scope="module")
def weights(recipe: Path, store: Store, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights of an uninterrupted run."""
    run = tmp_path_factory.mktemp("runs") / "run"
    api.train(recipe, store.path, run)
    return (run / "model.safetensors").read_bytes()


def start(recipe: Path, store: Store, run: Path) -> subprocess.Popen[bytes]:
    words = ["train", str(recipe), "--data", str(store.path), "--out", str(run)]
    return subprocess.Popen(
        [sys.executable, "-m", "graftseg", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
    )


def wait_for_step(run: Path, step: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while len(read_log(run / "log.jsonl")) < step:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("step", [12, 45])
@pytest.mark.slow
def test_killed_and_resumed_the_weights_are_the_same_bits(
    recipe: Path, store: Store, tmp_path: Path, weights: bytes, step: int
) -> None:
    run = tmp_path / "run"
    process = start(recipe, store, run)
    wait_for_step(run, step, process)
    process.kill()
    process.communicate()
    assert RunFolder(run).manifest()["status"] == "running" and not (run / "model.safetensors").exists()
    api.train(recipe, store.path, run, resume=True)
    assert (run / "model.safetensors").read_bytes() == weights
    assert [line["global_step"] for line in read_log(run / "log.jsonl")] == list(range(1, sum(STEPS) + 1))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.slow
def test_a_stop_is_clean(recipe: Path, store: Store, tmp_path: Path, weights: bytes, number: signal.Signals) -> None:
    run = tmp_path / "run"
    process = start(recipe, store, run)
    wait_for_step(run, 20, process)
    process.send_signal(number)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert (
        b"the state is saved; run the same command with --resume. [interrupted]\n" in error
        and b"Traceback" not in error
    )
    facts = RunFolder(run).manifest()
    assert facts["status"] == "stopped" and 20 <= facts["steps"] < sum(STEPS)
    api.train(recipe, store.path, run, resume=True)
    assert (run / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_later_stop_does_not_wait_for_the_step(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[int] = []
    before = signal.signal(number, lambda number, frame: again.append(number))
    try:
        with collecting_stop_signals() as received:
            signal.raise_signal(number)
            # the same Ctrl-C arrives twice: for the process and for its group
            signal.raise_signal(number)
            assert received == [number] and not again
            monkeypatch.setattr(stopping, "SAME_SIGNAL_SECONDS", -1.0)
            signal.raise_signal(number)
            assert again == [number]
    finally:
        signal.signal(number, before)


@pytest.mark.slow
def test_a_closed_terminal_saves_the_run(recipe: Path, store: Store, tmp_path: Path, weights: bytes) -> None:
    """The program leads the session of the terminal, so its output goes to a closed terminal."""
    run = tmp_path / "run"
    words = [sys.executable, "-m", "graftseg", "train", recipe, "--data", store.path, "--out", run]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, list(map(str, words)))
    while len(read_log(run / "log.jsonl")) < 20:
        os.read(terminal, 1 << 16)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 128 + signal.SIGHUP
    assert RunFolder(run).manifest()["status"] == "stopped"
    api.train(recipe, store.path, run, resume=True)
    assert (run / "model.safetensors").read_bytes() == weights


@pytest.mark.slow
def test_an_ignored_hangup_does_not_stop_a_run(recipe: Path, store: Store, tmp_path: Path, weights: bytes) -> None:
    run = tmp_path / "run"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start(recipe, store, run)
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for_step(run, 5, process)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=120)
    assert process.returncode == 0 and (run / "model.safetensors").read_bytes() == weights


@pytest.mark.slow
def test_two_runs_cannot_write_into_one_folder(recipe: Path, store: Store, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(recipe, store, run)
    wait_for_step(run, 2, process)
    with user_error(Code.FOLDER_LOCKED, run):
        api.train(recipe, store.path, run, resume=True)
    assert process.wait(timeout=120) == 0
    process.communicate()
