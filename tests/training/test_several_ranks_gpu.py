"""Two ranks that share one GPU, for correctness only, and two ranks with one GPU each, which communicate by NCCL."""

from functools import partial
from pathlib import Path

import pytest
import torch
from test_several_ranks import logged, recipe_for, train
from torch import distributed as dist

from graftseg import api
from graftseg.data.store import Store
from rank_fakes import on_ranks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


def test_two_ranks_on_one_gpu_train_as_one_process(store: Store, tmp_path: Path) -> None:
    """The losses of all steps agree. In float32, a GPU convolves in TF32, so they agree to three digits."""
    recipe = recipe_for(captured=False, compiled=False)
    task = partial(train, recipe, store.path, tmp_path / "two", device="cuda:0")
    assert on_ranks([task], device="cuda:0") == [["finished", "finished"]]
    api.train(recipe, store.path, tmp_path / "one", device="cuda:0")
    one, two = ([line["total"] for line in logged(tmp_path / name) if "total" in line] for name in ("one", "two"))
    assert len(two) == 9
    assert two == pytest.approx(one, abs=2e-3)


def test_two_ranks_with_dropout_and_local_statistics_on_one_gpu(store: Store, tmp_path: Path) -> None:
    recipe = recipe_for(dropout=True, batch_statistics="local", precision="bf16")
    task = partial(train, recipe, store.path, tmp_path / "two", device="cuda:0")
    assert on_ranks([task], device="cuda:0") == [["finished", "finished"]]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("batch_statistics", ["sync", "local"])
def test_two_gpus_train_by_nccl(store: Store, tmp_path: Path, batch_statistics: str) -> None:
    """With shared statistics, the losses of all steps agree with those of one GPU to three digits."""
    recipe = recipe_for(captured=False, compiled=False, batch_statistics=batch_statistics)
    task = partial(train, recipe, store.path, tmp_path / "two", device="cuda")
    backends, outcomes = on_ranks([dist.get_backend, task], device="cuda")
    assert backends == ["nccl", "nccl"]
    assert outcomes == ["finished", "finished"]
    two = [line["total"] for line in logged(tmp_path / "two") if "total" in line]
    assert len(two) == 9
    if batch_statistics == "sync":
        api.train(recipe, store.path, tmp_path / "one", device="cuda:0")
        one = [line["total"] for line in logged(tmp_path / "one") if "total" in line]
        assert two == pytest.approx(one, abs=2e-3)
