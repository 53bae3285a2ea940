"""The usual implementation computes the same loss, update, components and batches as this package."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from graftseg.core.types import Batch, Labeled, Progress
from graftseg.data.augment import AugmentSettings
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.experiments.speed.instruments import PHASES
from graftseg.experiments.speed.subject import Subject, subject_of
from graftseg.experiments.speed.usual import (
    Files,
    H5Scans,
    TwoStreams,
    UsualTrainer,
    augmented,
    average,
    components,
    time_phases,
    time_whole,
    usual_batches,
)
from graftseg.networks.ema import ema_update, make_teacher
from graftseg.ops.components import largest_components
from graftseg.ops.optimizers import build_optimizer

CPU = torch.device("cpu")
h5py = pytest.importorskip("h5py")


@pytest.fixture(scope="module", params=[2, 3])
def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """Self-training on tiny phantoms, with networks that draw no dropout and an update linear in the gradient."""
    dimensions: int = request.param
    folder = tmp_path_factory.mktemp("bench")
    network = tiny.recipe_tree(dimensions)["network"] | {"dropout": False}
    recipe = tiny.tiny_recipe(dimensions, network=network, stages=[{"method": "bcp", "steps": 5}])
    store = prepare(read_layout(tiny.write_scans(folder / "scans", dimensions)), folder / "store", recipe.data)
    return subject_of(recipe, store, CPU)


@pytest.fixture(scope="module")
def files(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(subject, tmp_path_factory.mktemp("h5"))


def some_batch(subject: Subject, kind: torch.dtype = torch.float32) -> Batch:
    generator = torch.Generator().manual_seed(0)
    patch = subject.recipe.batches.patch
    x = torch.randn(4, 1, *patch, generator=generator, dtype=kind)
    y = torch.randint(len(subject.store.classes), (2, *patch), generator=generator)
    return Batch(Labeled(x[:2], y), x[2:])


def test_the_loss_is_that_of_the_method(subject: Subject) -> None:
    method, trainer, batch = subject.build().train(), UsualTrainer(subject), some_batch(subject)
    trainer.student.load_state_dict(method.student.state_dict())
    trainer.teacher.load_state_dict(method.get_submodule("teacher").state_dict())
    torch.manual_seed(7)
    (objective,) = method.objectives(batch, Progress(torch.tensor(0), 1))
    torch.manual_seed(7)
    assert trainer.loss(batch).item() == pytest.approx(objective.total.item(), rel=1e-6)


def test_a_step_moves_student_and_teacher_as_the_method_does(subject: Subject) -> None:
    # in float64, since a kink of the network makes two layouts' rounding errors in float32 large in the gradient
    method, trainer, batch = subject.build().train().double(), UsualTrainer(subject), some_batch(subject, torch.float64)
    trainer.student.double(), trainer.teacher.double()
    optimizer, now = build_optimizer(method.student, subject.stage.optimizer), Progress(torch.tensor(0), 5)
    torch.manual_seed(7)
    (objective,) = method.objectives(batch, now)
    objective.total.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    method.after_step(now)
    torch.manual_seed(7)
    loss = trainer.step(iter([batch]), 0, 5)
    assert loss == pytest.approx(objective.total.item(), rel=1e-6)
    for ours, theirs in ((method.student, trainer.student), (method.get_submodule("teacher"), trainer.teacher)):
        for name, tensor in ours.state_dict().items():
            torch.testing.assert_close(theirs.state_dict()[name], tensor, rtol=1e-6, atol=1e-8, msg=name)


@pytest.mark.parametrize("scope", ["parameters", "state"])
def test_the_average_is_that_of_the_teacher(subject: Subject, scope: str) -> None:
    student = subject.networks.build()
    first, second = make_teacher(student), make_teacher(student)
    for tensor in student.state_dict().values():
        tensor.add_(3)
    average(first, student, 0.9, scope)  # type: ignore[arg-type]
    ema_update(second, student, 0.9, scope)  # type: ignore[arg-type]
    for name, tensor in second.state_dict().items():
        torch.testing.assert_close(first.state_dict()[name], tensor, msg=name)


@st.composite
def label_maps(draw: st.DrawFn) -> tuple[npt.NDArray[np.int64], int]:
    axes = draw(st.integers(2, 3))
    shape = (2, *(draw(st.integers(1, 8 - axes)) for _ in range(axes)))
    return draw(arrays(np.int64, shape, elements=st.integers(0, 3))), draw(st.integers(1, axes))


@given(label_maps())
@settings(deadline=None)
def test_components_agree_with_those_of_the_package(drawn: tuple[npt.NDArray[np.int64], int]) -> None:
    labels, connectivity = torch.from_numpy(drawn[0]), drawn[1]
    assert torch.equal(components(labels, 4, connectivity), largest_components(labels, 4, connectivity))
    assert torch.equal(components(labels, 4, connectivity, (3,)), largest_components(labels, 4, connectivity, (3,)))


def test_components_join_across_corners_by_default() -> None:
    labels = torch.eye(3, dtype=torch.long)[None]
    assert torch.equal(components(labels, 2, None), labels)
    assert components(labels, 2, 1).sum() == 1


@given(labeled=st.integers(1, 9), unlabeled=st.integers(1, 9), sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_an_epoch_is_one_permutation_of_the_labeled(labeled: int, unlabeled: int, sizes: tuple[int, int]) -> None:
    sampler = TwoStreams(labeled, unlabeled, sizes)
    epoch = list(sampler)
    assert len(epoch) == len(sampler) == max(1, labeled // sizes[0])
    assert all(len(batch) == sum(sizes) for batch in epoch)
    first = [index for batch in epoch for index in batch[: sizes[0]]]
    second = [index for batch in epoch for index in batch[sizes[0] :]]
    assert set(first) <= set(range(labeled))
    assert set(second) <= set(range(labeled, labeled + unlabeled))
    if labeled >= sizes[0]:
        assert len(set(first)) == len(first)
    assert len(set(second[:unlabeled])) == min(unlabeled, len(second))


def test_files_hold_the_store_and_no_label_of_an_unlabeled_case(subject: Subject, files: Files) -> None:
    assert (len(files.labeled), len(files.unlabeled)) == (4, 5)
    case = subject.store.of("labeled")[2]
    with h5py.File(files.labeled[2]) as file:
        assert file["image"].compression == file["label"].compression == "gzip"
        assert file["image"].dtype == np.float32
        assert np.array_equal(file["image"][:], subject.store.image(case))
        assert np.array_equal(file["label"][:], subject.store.label(case))
    with h5py.File(files.unlabeled[0]) as file:
        assert file["label"].shape == file["image"].shape[1:]
        assert not file["label"][:].any()


def test_volumes_become_slices_in_two_dimensions(tmp_path: Path) -> None:
    recipe = tiny.tiny_recipe(2)
    scans = tiny.write_scans(tmp_path / "scans", 3, labeled=2, unlabeled=1, test=0)
    store = prepare(read_layout(scans), tmp_path / "store", recipe.data)
    files = Files(subject_of(recipe, store, CPU), tmp_path / "h5")
    assert (len(files.labeled), len(files.unlabeled)) == (2 * tiny.SIDE, tiny.SIDE)
    with h5py.File(files.labeled[tiny.SIDE + 3]) as file:
        assert np.array_equal(file["label"][:], store.label(store.of("labeled")[1])[..., 3])


@given(
    space=st.tuples(*[st.integers(3, 9)] * 3),
    patch=st.tuples(*[st.integers(2, 8)] * 3),
    flip=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 99),
)
@settings(deadline=None)
def test_image_and_label_of_a_volume_are_cut_alike(
    space: tuple[int, ...], patch: tuple[int, ...], flip: float, seed: int
) -> None:
    voxels = 1 + np.arange(np.prod(space)).reshape(1, *space)
    image, label = augmented(
        np.random.default_rng(seed), voxels.astype(np.float32), voxels, patch, AugmentSettings(rotate_flip=flip)
    )
    assert image.shape == label.shape == (1, *patch)
    assert np.array_equal(image, label)
    kept = label[label > 0]
    assert len(np.unique(kept)) == len(kept)


def test_a_slice_is_zoomed_to_the_patch() -> None:
    plain = AugmentSettings(rotate_flip=0)
    square = np.array([[[1, 2], [3, 4]]])
    image, label = augmented(np.random.default_rng(0), square.astype(np.float32), square, (4, 4), plain)
    assert label.tolist() == [[[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]]
    assert np.array_equal(image, label)


def test_a_small_rotation_keeps_values_and_shape() -> None:
    disc = np.zeros((1, 9, 9), np.uint8)
    disc[0, 1:4, 4] = 3
    settings = AugmentSettings(rotate_flip=0, rotate=1, degrees=180)
    turned = [augmented(np.random.default_rng(seed), disc, disc, (9, 9), settings)[1] for seed in range(8)]
    assert {*np.unique(turned)} == {0, 3}
    assert any(not np.array_equal(one, disc) for one in turned)


def test_batches_are_like_those_of_the_package(subject: Subject, files: Files) -> None:
    patch = subject.recipe.batches.patch
    with usual_batches(subject, files, workers=0) as batches:
        for _ in range(3):
            batch = next(batches)
            assert batch.labeled.images.shape == batch.unlabeled.shape == (2, 1, *patch)
            assert batch.labeled.images.dtype == batch.unlabeled.dtype == torch.float32
            assert (batch.labeled.labels.shape, batch.labeled.labels.dtype) == ((2, *patch), torch.int64)
            assert batch.labeled.labels.max() < len(subject.store.classes)


def test_workers_load_the_same_kind_of_patch(subject: Subject, files: Files) -> None:
    scans = H5Scans(files.labeled, subject.recipe.batches.patch, subject.recipe.batches.augment)
    with usual_batches(subject, files, workers=1) as batches:
        images = next(batches).labeled.images
    assert images[0].shape == scans[0][0].shape
    assert torch.isfinite(images).all() and images.std() > 0


def test_times_are_those_of_every_phase(subject: Subject, files: Files) -> None:
    trainer = UsualTrainer(subject)
    with usual_batches(subject, files, workers=0) as batches:
        assert time_whole(trainer, batches, warm_up=1, steps=1) > 0
        split = time_phases(trainer, batches, 2)
    assert tuple(split) == PHASES
    assert all(seconds > 0 for seconds in split.values())
    assert trainer.watch is None
