"""Workers of a local Ray cluster that die during a sweep, a prediction and a preparation, and Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml
from command_line import contents

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.predictions import read_manifest
from graftseg.core.run_folder import RunFolder, read_log
from graftseg.data.store import CASES, open_store
from graftseg.recipes.recipe import Recipe
from sweep_fakes import Sweeper

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]
STEPS = 60


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Iterator[None]:
    """Connect to a local cluster with two cores, which all functions of this process use."""
    from graftseg.core.ray_tasks import connected

    with connected("ray", cores=2):
        yield


def workers() -> list[int]:
    """Return the processes that run a task in the cluster of this process."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if (folder / "cmdline").read_bytes().startswith(b"ray::_run_task"):
                raylet = parent_of(int(folder.name))
                found += [int(folder.name)] if parent_of(raylet) == os.getpid() else []
    return found


def parent_of(process: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@contextmanager
def killing(condition: Callable[[], bool]) -> Iterator[list[int]]:
    """Kill the first worker that runs a task when the condition is met. Yield a list of the killed processes."""
    killed: list[int] = []
    ended = threading.Event()

    def kill() -> None:
        while not ended.is_set() and not killed:
            if condition() and (running := workers()):
                with suppress(ProcessLookupError):
                    os.kill(running[0], signal.SIGKILL)
                    killed.append(running[0])
            time.sleep(0.01)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


def long_recipe(**changes: Any) -> Recipe:
    """Return the tiny recipe with 60 steps and a checkpoint after every 10 steps."""
    tree = tiny.recipe_tree()
    stages = [tree["stages"][0] | {"method": "supervised", "steps": STEPS}]
    return tiny.tiny_recipe(stages=stages, loop=tree["loop"] | {"checkpoint_every": 10}, **changes)


def test_sweep(sweeper: Sweeper, tmp_path: Path) -> None:
    for name in ("la-4/bcp", "la-8/bcp"):
        tree = long_recipe(name=name).model_dump(mode="json")
        (tmp_path / "recipes" / f"{name}.yaml").write_text(yaml.safe_dump(tree))
    expected = sweeper(seeds=2)
    lines, runs, records = sweeper.told, sweeper.runs, sweeper.records()
    logs = {path: contents(path.parent) for path in sweeper.runs.rglob("model.safetensors")}
    sweeper.runs, sweeper.results = tmp_path / "runs-ray", tmp_path / "results-ray"

    def is_training() -> bool:
        return any(path.read_bytes().count(b"\n") > 20 for path in sweeper.runs.rglob("log.jsonl"))

    with killing(is_training) as killed:
        told, sweeper.told = lines.copy(), []
        assert sweeper(seeds=2, on="ray") == expected
    assert killed and sweeper.told == told and sweeper.records() == records and len(records) == 4
    for path, files in logs.items():
        run = sweeper.runs / path.parent.relative_to(runs)
        assert [line["step"] for line in read_log(RunFolder(run).log_file)] == list(range(1, STEPS + 1))
        for name in ("model.safetensors", "predictions/metrics.csv", "predictions/test_000.nii.gz"):
            assert (run / name).read_bytes() == files[name]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with 400 small scans."""
    return tiny.write_scans(tmp_path_factory.mktemp("many"), labeled=4, unlabeled=396, test=2)


def test_prepare_and_predict(many: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.yaml"
    long_recipe().save(recipe)
    local = api.prepare(many, tmp_path / "store", recipe=recipe)
    cases = tmp_path / "store-ray" / CASES
    with killing(lambda: cases.is_dir() and len(list(cases.iterdir())) > 20) as killed:
        store = api.prepare(many, tmp_path / "store-ray", recipe=recipe, on="ray")
    assert killed and store.identity == local.identity and contents(store.path) == contents(local.path)
    assert len(open_store(store.path).cases) == 402

    run, scans = tmp_path / "run", many / "imagesUn"
    api.train(recipe, local.path, run, device="cpu", shorter=10)
    here, there = tmp_path / "here", tmp_path / "there"
    expected = api.predict(run, scans, here, device="cpu")
    with killing(lambda: len(list(there.glob("*.nii.gz"))) > 20) as killed:
        predicted = api.predict(run, scans, there, device="cpu", on="ray")
    assert killed and predicted.unfound == expected.unfound
    assert [case.case for case in predicted.cases] == [case.case for case in expected.cases]
    manifest = read_manifest(there, "")
    assert manifest is not None and manifest.is_complete and len(manifest.cases) == 396
    timed = ("manifest.json", "cases.jsonl")  # they contain seconds
    kept = {name: file for name, file in contents(here).items() if name not in timed}
    assert {name: file for name, file in contents(there).items() if name not in timed} == kept


def test_interrupt_saves_the_state_of_all_tasks(many: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "tiny.yaml"
    tree = tiny.recipe_tree()
    stages = [tree["stages"][0] | {"method": "supervised", "steps": 4000}]
    tiny.tiny_recipe(stages=stages).save(recipe)
    store = api.prepare(tiny.write_scans(tmp_path / "scans"), tmp_path / "store", recipe=recipe).path
    words = ["train", str(recipe), "--data", str(store), "--seeds", "2", "--out", str(tmp_path / "run"), "--on", "ray"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "graftseg", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment,
    )  # fmt: skip
    runs = [RunFolder(tmp_path / "run").seed(seed) for seed in (0, 1)]
    while process.poll() is None and not all(run.log_file.is_file() and read_log(run.log_file) for run in runs):
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130 and f"[{Code.INTERRUPTED}]" in errors.splitlines()[-1]
    for run in runs:
        assert run.manifest()["status"] == "stopped" and list(run.checkpoints.iterdir())
