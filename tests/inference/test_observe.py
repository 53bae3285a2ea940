"""Measurements of scans with networks of known output, and ranking on the command line."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from command_line import CommandLine
from scipy import ndimage
from torch import Tensor, nn

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.types import Geometry
from graftseg.data.grid import Grid
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.scans import read_label, read_scan, write_label, write_scan
from graftseg.data.store import Store
from graftseg.inference.model import TrainedNetwork
from graftseg.inference.predictor import Predictor
from graftseg.inference.ranking import DEFAULT_ORDER
from graftseg.inference.ranking.cases import cases_in
from graftseg.inference.ranking.observe import Prepared, count_components, near_boundary, observe
from graftseg.inference.ranking.rank import Ranked, Ranking
from loops import for_each
from user_errors import user_error


class Encoder(nn.Module):
    """Return the image and its average pool."""

    def forward(self, images: Tensor) -> list[Tensor]:
        return [images, nn.functional.avg_pool2d(images, 2)]


class Student(nn.Module):
    """Return logits ``(0, x)`` of one channel."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()

    def forward(self, images: Tensor) -> Tensor:
        images = self.encoder(images)[0]
        return torch.cat([torch.zeros_like(images), images], dim=1)


def network(fit: str = "crop", **inference: Any) -> TrainedNetwork:
    batches = {"patch": [8, 8], "labeled": 2, "unlabeled": 2, "fit": fit}
    recipe = tiny.tiny_recipe(2, batches=batches, inference=inference)
    student = Student()
    method: Any = SimpleNamespace(student=student, segment=lambda images: student(images).softmax(1))
    return TrainedNetwork(method, recipe, ("background", "ring"), 1, torch.device("cpu"))


def given_image(values: Any, label: Any = None, voxel: float = 2.0) -> Prepared:
    return Prepared(torch.as_tensor(values, dtype=torch.float32)[None], voxel, label)


def entropy(p: float) -> float:
    return -(p * math.log(p) + (1 - p) * math.log(1 - p)) / math.log(2)


def test_measurements_of_a_known_scan() -> None:
    image = np.full((12, 10), -20.0)
    image[2:4, 2:4] = 20.0
    image[9, 9] = math.log(3)
    found = observe(network(), "a", given_image(image))
    assert (found.sizes, found.components, found.voxel_size) == ((10.0,), (2,), 2.0)
    assert found.uncertainty == pytest.approx(entropy(0.75) / 5, abs=1e-5)
    assert found.at_boundary == pytest.approx(1.0, abs=1e-5)
    # windows begin at 0 and 4 along the first axis, at 0 and 2 along the second
    windows = [image[a : a + 8, b : b + 8].mean() for a in (0, 4) for b in (0, 2)]
    assert found.features == pytest.approx([np.mean(windows)], rel=1e-5)


@for_each(("rule", "size", "parts"), [(True, 8.0, 1), ((1,), 8.0, 1), ((2,), 10.0, 2), (False, 10.0, 2)])
@for_each("fit", ["crop", "stretch"])
def test_removed_components_are_not_counted(fit: str, rule: Any, size: float, parts: int) -> None:
    image = np.full((8, 8), -20.0)
    image[2:4, 2:4] = image[7, 7] = 20.0
    found = observe(network(fit, largest_component=rule), "a", given_image(image))
    assert (found.sizes, found.components) == ((size,), (parts,))


def test_counted_components_are_those_of_the_prediction() -> None:
    image = torch.from_numpy(np.random.default_rng(5).normal(-0.5, 1.0, (8, 8)).astype(np.float32))[None]
    for rule in (True, False):
        shipped = network(largest_component=rule)
        settings = shipped.recipe.inference
        predictor = Predictor(shipped.method.segment, (8, 8), settings, 2, torch.device("cpu"))
        labels = predictor.maps(image, Grid.identity((8, 8))).labels
        found = observe(shipped, "a", Prepared(image, 1.0, None))
        assert (found.sizes, found.components) == ((float(labels.sum()),), (count_components(labels, 1),))
        assert (found.components == (1,)) == rule


def test_components_of_a_given_label_map_are_counted() -> None:
    label = np.zeros((8, 8), np.uint8)
    label[0, 0] = label[4, 4] = 1
    found = observe(network(largest_component=True), "a", given_image(np.full((8, 8), 20.0), label))
    assert found.components == (2,)


def test_uncertainty_inside_an_object() -> None:
    image = np.full((16, 16), 0.1)
    found = observe(network(), "a", given_image(image))
    assert found.uncertainty == pytest.approx(entropy(1 / (1 + math.exp(-0.1))), abs=1e-5)
    assert found.at_boundary == 0 and found.components == (1,)


def test_nothing_found() -> None:
    found = observe(network(), "a", given_image(np.full((8, 8), -20.0)))
    assert (found.uncertainty, found.at_boundary, found.sizes, found.components) == (0.0, 0.0, (0.0,), (0,))


def test_a_labeled_scan_is_measured_by_its_label_map() -> None:
    label = np.zeros((8, 8), np.uint8)
    label[0, 0] = label[4, 4] = label[5, 5] = 1
    found = observe(network(), "a", given_image(np.full((8, 8), 20.0), label, voxel=0.5))
    assert found.sizes == (1.5,) and found.components == (2,)


@pytest.mark.parametrize("fit", ["crop", "stretch"])
def test_volumes_for_a_slice_network(fit: str) -> None:
    image = np.full((8, 8, 3), -20.0)
    image[1:3, 1:3, 0] = image[1:3, 1:3, 2] = 20.0
    found = observe(network(fit), "a", given_image(image))
    assert found.sizes == (16.0,) and found.components == (2,)


@pytest.mark.parametrize("shape", [(5, 7), (8, 8, 3), (4, 4, 3), (4, 8, 2), (16, 15, 2)])
def test_sizes_of_stretched_slices_are_those_of_the_label_map(shape: tuple[int, ...]) -> None:
    label = np.zeros(shape, np.uint8)
    # One half of the slice survives shrinking to the patch.
    label[: shape[0] // 2] = 1
    image = np.where(label, 20.0, -20.0)
    found, truth = (observe(network("stretch"), "a", given_image(image, known)) for known in (None, label))
    assert found.sizes == truth.sizes == (2.0 * label.sum(),)
    assert found.components == truth.components == (1,)


def test_a_label_value_outside_the_classes_is_an_error() -> None:
    label = np.full((8, 8), 2, np.uint8)
    with user_error(Code.LABEL_INVALID, "a", "value 2"):
        observe(network(), "a", given_image(np.zeros((8, 8)), label))


def test_other_channels_are_an_error() -> None:
    with user_error(Code.CHANNELS_MISMATCH, "a"):
        observe(network(), "a", Prepared(torch.zeros(2, 8, 8), 1.0, None))


@pytest.mark.parametrize("shape", [(9, 7), (6, 5, 7), (3, 1, 4)])
def test_the_band_is_two_voxels_wide(shape: tuple[int, ...]) -> None:
    labels = (np.random.default_rng(0).random(shape) > 0.93).astype(np.uint8)
    expected = np.zeros(shape, bool)
    for index in np.ndindex(shape):
        for axis in range(len(shape)):
            line = np.take(labels, range(shape[axis]), axis)[
                tuple(slice(None) if a == axis else index[a] for a in range(len(shape)))
            ]
            faces = np.flatnonzero(line[1:] != line[:-1])
            expected[index] |= any(face - 1 <= index[axis] <= face + 2 for face in faces)
    assert np.array_equal(near_boundary(labels), expected)


def test_parts_are_those_of_scipy() -> None:
    labels = (np.random.default_rng(0).random((7, 8, 9)) > 0.8).astype(np.uint8)
    assert count_components(labels, 1) == ndimage.label(labels == 1, np.ones((3, 3, 3)))[1]
    assert count_components(labels, 2) == 0


@pytest.fixture(scope="module")
def trained(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("ranked") / "run"
    api.train(tiny.tiny_recipe(), store.path, run, device="cpu")
    return run


def test_rank_command_writes_a_table(
    cli: CommandLine, trained: Path, store: Store, scans: Path, tmp_path: Path
) -> None:
    out = tmp_path / "rank.csv"
    code, printed, _ = cli("rank", trained, "--out", out, "--top", 2, "--device", "cpu")
    lines = printed.splitlines()
    ranking = api.rank(trained, store.path, device="cpu")
    assert code == 0 and lines[3:] == [*filter(None, [ranking.in_common()]), f"{out}: 5 scans", *ranking.unlearned]
    assert [line.split("\t") for line in lines[1:3]] == [list(cells) for cells in ranking.lines(2)]
    by_scans = api.rank(trained, scans, device="cpu").rows
    assert {row.case for row in by_scans} == {f"unlabeled_{i:03d}" for i in range(5)}


def test_rank_command_by_coverage(cli: CommandLine, trained: Path, store: Store) -> None:
    rows = {}
    for by in ("uncertainty", "coverage"):
        ranking = api.rank(trained, store.path, by=by, device="cpu")
        printed = cli.works("rank", trained, "--by", by, "--device", "cpu").splitlines()
        assert [line.split("\t") for line in printed[1:6]] == [list(cells) for cells in ranking.lines()]
        rows[by] = ranking.rows
    covering = [row.score for row in rows["coverage"]]
    assert covering == sorted(covering, reverse=True) and sum(covering) == pytest.approx(1)
    assert {row.case: row.uncertainty for row in rows["coverage"]} == {
        row.case: row.uncertainty for row in rows["uncertainty"]
    }
    assert api.rank(trained, store.path, device="cpu").rows == rows[DEFAULT_ORDER]
    cli.fails("rank", trained, "--by", "name")


def test_a_reason_shared_by_all_scans_is_attributed_to_the_network(
    cli: CommandLine, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = {"a": ("no core found",), "b": ("no core found",), "c": ()}
    rows = tuple(Ranked(name, 0.5, 0.1, 1.0, 0.0, 0, found, found) for name, found in reasons.items())
    sentence = "All scans share a reason (no core found), which describes the network rather than the scans."
    monkeypatch.setattr(api, "rank", lambda *_, **__: Ranking(rows[:2]))
    assert sentence in cli.works("rank", trained, "--top", 1)
    monkeypatch.setattr(api, "rank", lambda *_, **__: Ranking(rows))
    assert sentence not in cli.works("rank", trained, "--top", 2)
    monkeypatch.setattr(api, "rank", lambda *_, **__: Ranking(rows, unlearned=("core is found in none",)))
    assert cli.works("rank", trained, "--top", 2).splitlines()[-1] == "core is found in none"


def test_labels_that_the_run_did_not_see_are_never_opened(tmp_path: Path) -> None:
    data = tiny.write_scans(tmp_path / "data")
    for path in sorted((data / "labelsTr").iterdir())[1:]:
        path.write_bytes(b"not a label map")
    recipe = tiny.tiny_recipe(batches={"patch": [16, 16], "labeled": 2, "unlabeled": 2, "labeled_cases": 1})
    labeled, unlabeled = cases_in(data, recipe)
    assert [case.name for case in labeled] == ["labeled_000"] and len(unlabeled) == 8
    assert all(case.read().label is None for case in unlabeled)
    assert labeled[0].read().label is not None


def test_a_scan_that_cannot_be_read_is_reported(cli: CommandLine, trained: Path, scans: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for path in sorted(scans.rglob("*.nii.gz")):
        scan = read_scan(path)
        write_scan(data / path.relative_to(scans), scan.array, scan.geometry)
    broken = next((data / "imagesUn").glob("unlabeled_001*"))
    broken.write_bytes(b"nothing")
    code, printed, error = cli("rank", trained, "--data", data, "--device", "cpu")
    assert code == 2 and printed.count("\tunlabeled_") == 4 and broken.name in error


def test_a_label_map_on_another_grid_is_reported(cli: CommandLine, trained: Path, tmp_path: Path) -> None:
    data = tiny.write_scans(tmp_path / "data")
    bad = sorted((data / "labelsTr").iterdir())[0]
    label = read_label(bad)
    write_label(bad, label.array[:-1], Geometry((15, 16), label.geometry.affine))
    code, printed, error = cli("rank", trained, "--data", data, "--device", "cpu")
    assert code == 2 and printed.count("\tunlabeled_") == 5
    assert f"{bad}: " in error and Code.GEOMETRY_MISMATCH in error


def test_voxels_of_a_sheared_grid(tmp_path: Path) -> None:
    affine = ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 3.0, 0.0), (0.0, 0.0, 4.0, 0.0), (0.0, 0.0, 0.0, 1.0))
    geometry = Geometry((6, 5, 4), affine)
    for name in ("imagesTr/a", "imagesUn/b"):
        write_scan(tmp_path / "data" / f"{name}_0000.nii.gz", np.arange(120.0).reshape(6, 5, 4), geometry)
    write_label(tmp_path / "data" / "labelsTr" / "a.nii.gz", np.ones((6, 5, 4), np.uint8), geometry)
    recipe = tiny.tiny_recipe(3, data={"dimensions": 3, "spacing": [2.0, None, None]})
    stored = prepare(read_layout(tmp_path / "data"), tmp_path / "store", recipe.data)
    for place in (tmp_path / "data", stored.path):
        labeled, unlabeled = cases_in(place, recipe)
        # slices are 4 mm apart and 5 mm along the sheared axis; two voxels along the first axis become one
        assert [case.read().voxel_size for case in (*labeled, *unlabeled)] == pytest.approx([8.0, 8.0])


def test_a_folder_of_folds_is_an_error(cli: CommandLine, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "folds" / "fold-0").mkdir(parents=True)
    (tmp_path / "folds" / "fold-0" / "run.json").write_bytes((trained / "run.json").read_bytes())
    folds = tmp_path / "folds"
    for command in (("rank", folds), ("export", "weights", folds, "--out", tmp_path / "out.safetensors")):
        assert str(folds / "fold-0") in cli.fails(*command)


def test_invalid_arguments_of_rank(cli: CommandLine, trained: Path, store: Store, tmp_path: Path) -> None:
    cli.fails("rank", tmp_path)
    cli.fails("rank", trained, "--out", tmp_path / "rank.html", code=Code.OPTION_INVALID)
    other = tiny.write_scans(tmp_path / "other", unlabeled=0)
    cli.fails("rank", trained, "--data", other, code=Code.TOO_FEW_CASES)
    minmax = tiny.tiny_recipe(data={"dimensions": 2, "intensity": {"rule": "minmax"}}).data
    prepared = prepare(read_layout(Path(store.root)), tmp_path / "minmax", minmax)
    cli.fails("rank", trained, "--data", prepared.path, code=Code.STORE_MISMATCH)


def test_exports_from_the_command_line(cli: CommandLine, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"
    code, printed, _ = cli("export", "weights", trained, "--out", out)
    assert code == 0 and printed == f"{out}: 46 tensors of a network with 4 classes\n"
    cli.fails("export", "pdf", trained, "--out", out, code=Code.OPTION_INVALID)
    cli.fails("export", "weights", trained, "--out", out, code=Code.TARGET_EXISTS)
