"""Tasks on a local Ray cluster with two workers. One test, because every start of a cluster takes seconds."""

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import tiny
import torch
from command_line import contents

from graftseg.cli.output import stderr_format
from graftseg.core.errors import Code, UserError
from graftseg.core.tasks import Executor, Work
from graftseg.data.store import Store
from graftseg.experiments.seeds import train_seeds

# an import of Ray here would come before the settings of ray_tasks
pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
logger = logging.getLogger("graftseg.cluster")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Executor]:
    """Connect to a local cluster with two cores."""
    from graftseg.core.ray_tasks import connected

    import_module("ray").cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with connected("ray", cores=2) as executor:
        yield executor


def _work(folder: Path, number: int) -> int:
    """Log a warning for 0, raise an error for 1, kill the own worker at the first call with 2."""
    if number == 0:
        logger.warning("zero in %s", Path.cwd())
    if number == 1:
        raise UserError(Code.CASE_NAME, "one", "fails", "nothing")
    if number == 2 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 10 * number


def test_tasks_survive_a_killed_worker_and_equal_local_tasks(
    cluster: Executor,
    store: Store,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    work = Work("Testing", (store.path,), (tmp_path / "out",))
    with cluster.running(partial(_work, tmp_path), range(5), work) as (result_of_0, result_of_1, *results):
        assert result_of_0() == 0
        with pytest.raises(UserError, match="one: fails") as raised:
            result_of_1()
        assert [result() for result in results] == [20, 30, 40]
    assert raised.value.code is Code.CASE_NAME
    (restart, zero) = sorted(record.getMessage() for record in caplog.records)
    assert restart.startswith("a worker died, and its task starts again (restart ")
    assert zero == f"zero in {Path.cwd()}"
    assert capsys.readouterr().out == ""
    assert (tmp_path / "killed").exists() and not list((tmp_path / "out").iterdir())
    _check_requests(cluster, work)
    _check_seeds(store, tmp_path)


def test_every_restart_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Repeated warnings are not shown, so every warning has its own number."""
    ray_tasks = import_module("graftseg.core.ray_tasks")
    with stderr_format(as_json=True), ray_tasks._quiet():
        for _ in range(2):
            ray_tasks.ray_worker.print_to_stdstream({"lines": ["the task will be retried"]})
    lines = [json.loads(line)["warning"] for line in capsys.readouterr().err.splitlines()]
    assert len(lines) == len(set(lines)) == 2


def _check_requests(cluster: Executor, work: Work) -> None:
    """Expect one error for each request that this cluster cannot fulfill."""

    def code_of(work: Work) -> Code:
        with pytest.raises(UserError) as raised, cluster.running(partial(_work, Path()), [3], work):
            pass
        return raised.value.code

    assert code_of(Work("", (Path("/no/such/folder"),), ())) is Code.FOLDER_NOT_SHARED
    assert code_of(Work("", (), (), torch.device("cuda"))) is Code.CLUSTER_UNFIT
    with pytest.raises(UserError, match="Ray assigns the GPUs"):
        cluster.choose_device("cuda:1")
    assert cluster.choose_device("auto") == torch.device("cpu")
    assert cluster.groups(list(range(20)), torch.device("cpu"))[:2] == [[0, 1, 2], [3, 4, 5]]


def _check_seeds(store: Store, folder: Path) -> None:
    """Expect the same lines, weights and label maps from two seeds on the cluster and in this process."""
    printed: dict[str | None, list[str]] = {None: [], "ray": []}
    recipe = tiny.tiny_recipe()
    for on, lines in printed.items():
        train_seeds(recipe, store.path, folder / str(on), 2, device="cpu", on=on, tell=lines.append)
    assert printed["ray"] == printed[None] and len(printed[None]) == 4
    local, remote = contents(folder / "None"), contents(folder / "ray")
    compared = {name for name in local if name.endswith((".safetensors", ".nii.gz", ".csv", "summary.json"))}
    assert local.keys() == remote.keys() and len(compared) == 9
    assert [name for name in compared if local[name] != remote[name]] == []
