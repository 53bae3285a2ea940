"""Folds and rankings on a local Ray cluster, and commands of a client of a cluster, against results without Ray."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import tiny
from command_line import contents

from graftseg import api
from graftseg.data.store import Store
from rank_fakes import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]
TIMED = ("manifest.json", "cases.jsonl")


@pytest.fixture(scope="module")
def run(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    api.train(tiny.tiny_recipe(), store.path, path, device="cpu")
    return path


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _accepts_clients(port: int, environment: dict[str, str]) -> bool:
    """Return whether a client can connect. On a busy machine, this takes some time after the port is open."""
    code = f"import ray; ray.init('ray://127.0.0.1:{port}', logging_level='critical')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    return done.returncode == 0


@pytest.fixture
def head() -> Iterator[tuple[str, dict[str, str]]]:
    """Start a cluster. Return the address for clients, and the environment variables with its token."""
    port, client_port = free_port(), free_port()
    environment = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        options = f"--port {port} --ray-client-server-port {client_port} --num-cpus 2 --temp-dir {folder}"
        words = [*options.split(), "--include-dashboard=false", "--disable-usage-stats", "--block"]
        process = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", *words],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            while not (_listens(client_port) and _accepts_clients(client_port, environment)):
                assert process.poll() is None, "the cluster did not start"
                time.sleep(0.1)
            yield f"ray://127.0.0.1:{client_port}", environment
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def test_commands_of_a_client(head: tuple[str, dict[str, str]], run: Path, scans: Path, tmp_path: Path) -> None:
    """A prediction and a ranking write the same files as without Ray."""
    address, environment = head
    here, there = tmp_path / "here", tmp_path / "there"
    api.predict(run, scans / "imagesTs", here / "maps", device="cpu")
    api.rank(run, out=here / "ranking.csv", device="cpu")
    for words in (
        ["predict", run, scans / "imagesTs", "--out", there / "maps"],
        ["rank", run, "--out", there / "ranking.csv"],
    ):
        command = [sys.executable, "-m", "graftseg", *map(str, words), "--device", "cpu", "--on", address]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
    local, remote = contents(here), contents(there)
    compared = [name for name in local if not name.endswith(TIMED)]
    assert local.keys() == remote.keys() and len(compared) >= 4
    assert [name for name in compared if local[name] != remote[name]] == []


def test_folds_and_ranking_equal_local_results(store: Store, run: Path, tmp_path: Path) -> None:
    from graftseg.core.ray_tasks import connected

    recipe, lines = tiny.tiny_recipe(), {"local": list[str](), "ray": list[str]()}
    folds: dict[str, Any] = {"folds": 2, "baseline": True, "device": "cpu"}
    api.train_folds(recipe, store.path, tmp_path / "run", **folds, tell=lines["local"].append)
    api.rank(run, out=tmp_path / "local.csv", device="cpu")
    local = contents((tmp_path / "run").rename(tmp_path / "local"))
    with connected("ray", cores=2):
        api.train_folds(recipe, store.path, tmp_path / "run", **folds, on="ray", tell=lines["ray"].append)
        api.rank(run, out=tmp_path / "ray.csv", device="cpu", on="ray")
    remote = contents(tmp_path / "run")
    assert lines["ray"] == lines["local"] and len(lines["local"]) >= 5
    compared = [name for name in local if name.endswith((".safetensors", ".nii.gz", ".csv", "folds.json"))]
    assert local.keys() == remote.keys() and len(compared) > 15
    assert [name for name in compared if local[name] != remote[name]] == []
    assert (tmp_path / "ray.csv").read_bytes() == (tmp_path / "local.csv").read_bytes()
