"""Groups of scans that are predicted as tasks, with an executor that pickles tasks as a cluster does."""

import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.predictions import read_manifest
from graftseg.core.run_folder import RunFolder
from graftseg.core.tasks import LocalExecutor, Work
from graftseg.data.store import Store
from graftseg.inference import predict
from graftseg.inference.predict import Predicted
from graftseg.inference.predict_tasks import predict_in_tasks
from graftseg.inference.prediction_settings import PredictionSettings
from graftseg.inference.ranking.measure import measure

CPU = torch.device("cpu")


class PicklingExecutor(LocalExecutor):
    """Sends each item to its own task by pickle. ``before`` is called before the tasks start."""

    def __init__(self, before: Callable[[], Any] = lambda: None) -> None:
        self.before, self.work = before, list[Work]()

    def groups(self, items: Sequence[Any], device: torch.device | None = None) -> list[list[Any]]:
        return [[item] for item in items]

    @contextmanager
    def running(
        self, function: Callable[[Any], Any], items: Sequence[Any], work: Work
    ) -> Iterator[Sequence[Callable[[], Any]]]:
        self.work.append(work)
        self.before()
        sent = [pickle.loads(pickle.dumps((function, item))) for item in items]
        yield [partial(function, item) for function, item in sent]


@pytest.fixture(scope="module")
def run(store: Store, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    path = tmp_path_factory.mktemp("runs") / "run"
    api.train(tiny.tiny_recipe(), store.path, path, device="cpu")
    return RunFolder(path)


@pytest.fixture
def images(scans: Path, tmp_path: Path) -> Path:
    """Copy two scans, test_000 and test_001."""
    return Path(shutil.copytree(scans / "imagesTs", tmp_path / "images"))


def predicted_by(executor: PicklingExecutor, run: RunFolder, scans: Path, out: Path) -> Predicted:
    return predict_in_tasks(run, scans, out, CPU, PredictionSettings(is_resumed=True), executor)


def test_tasks_equal_a_local_prediction_and_do_not_list_the_scans(
    run: RunFolder, store: Store, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scans, name in ((images, "images"), (store.path, "store")):
        local = api.predict(run.path, scans, tmp_path / f"local-{name}", device="cpu")

        def forbid_listing() -> None:
            monkeypatch.setattr(predict, "sources_in", None)

        out = tmp_path / f"tasks-{name}"
        predicted = predicted_by(PicklingExecutor(forbid_listing), run, scans, out)
        monkeypatch.undo()
        assert [case.case for case in predicted.cases] == [case.case for case in local.cases] != []
        for case in local.cases:
            assert (out / case.output).read_bytes() == (local.folder / case.output).read_bytes()
        assert predicted_by(PicklingExecutor(), run, scans, out).skipped == len(local.cases)


def test_a_scan_that_a_worker_does_not_see_is_a_failure(run: RunFolder, images: Path, tmp_path: Path) -> None:
    scan, out = images / "test_000_0000.nii.gz", tmp_path / "out"
    predicted = predicted_by(PicklingExecutor(scan.unlink), run, images, out)
    assert [case.case for case in predicted.cases] == ["test_001"]
    (failure,) = predicted.failures
    assert (failure.code, failure.where) == (Code.READ_FAILED, str(scan))
    manifest = read_manifest(out, "")
    assert manifest is not None and list(manifest.failures) == ["test_000"]


def test_workers_must_see_the_folders_of_a_list(
    run: RunFolder, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans = sorted(images.iterdir())
    for number, scan in enumerate(scans):
        (images / str(number)).mkdir()
        scan.rename(images / str(number) / scan.name)
    listed = tmp_path / "scans.txt"
    listed.write_text("".join(f"images/{number}/{scan.name}\n" for number, scan in enumerate(scans)))
    executor = PicklingExecutor()
    predicted_by(executor, run, listed, tmp_path / "out")
    monkeypatch.setattr("graftseg.inference.predict_tasks.MAX_FOLDERS", 1)
    predicted_by(executor, run, listed, tmp_path / "out")
    predicted_by(executor, run, images / "0", tmp_path / "others")
    first, second, third = (work.reads for work in executor.work)
    assert first == (run.path, listed, images / "0", images / "1")
    assert second == (run.path, listed, images)
    assert third == (run.path, images / "0")


def test_a_ranking_sends_its_scans(run: RunFolder, scans: Path, store: Store) -> None:
    for data in (scans, store.path):
        local = measure(run, data, CPU, LocalExecutor())
        sent = measure(run, data, CPU, PicklingExecutor())
        assert [seen.case for seen in sent.unlabeled] == [seen.case for seen in local.unlabeled]
        assert [seen.case for seen in sent.labeled] == [seen.case for seen in local.labeled]
        for one, other in zip(sent.unlabeled, local.unlabeled, strict=True):
            assert one.uncertainty == other.uncertainty
