from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from store_fakes import ACDC, Shape, batches_of, build, center_start, numbers, same
from torch import Tensor

from graftseg.core.errors import Code
from graftseg.data.augment import AugmentSettings, Draw
from graftseg.data.batches import Batches, BatchSettings, training_cases
from graftseg.data.layouts import read_layout
from graftseg.data.phantom import write_phantoms
from graftseg.data.prepare import PrepareSettings, prepare
from graftseg.data.store import CASES
from graftseg.data.stream import Stream
from loops import for_each
from user_errors import user_error

CPU = torch.device("cpu")


def epoch_of(batches: Batches, epoch: int, stage: int = 0) -> tuple[list[int], list[int]]:
    steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
    drawn = [batches.at(stage, step) for step in steps]
    labeled = [number for batch in drawn for number in numbers(batch.labeled.images)]
    return labeled, [number for batch in drawn for number in numbers(batch.unlabeled)]


def cut(scan: npt.NDArray[np.floating], start: Sequence[int], patch: Shape) -> npt.NDArray[np.floating]:
    """Return the patch at ``start``, with zeros outside the scan."""
    room = 20
    padded = np.pad(scan, [(0, 0)] + [(room, room)] * len(patch))
    return padded[(slice(None), *(slice(s + room, s + room + n) for s, n in zip(start, patch, strict=True)))]


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(
    ("shapes", "patch"),
    [
        ([(9, 9), (12, 7), (5, 11)], (8, 8)),
        ([(9, 9, 6), (12, 7, 5), (5, 11, 9)], (8, 8, 4)),
        ([(9, 9, 2), (7, 8, 5), (10, 4, 1)], (6, 8, 7)),
        ([(9, 9, 4), (12, 7, 3), (5, 11, 5)], (8, 8)),
    ],
    ids=["scans", "volumes", "shallow volumes", "slices"],
)
@pytest.mark.parametrize("augment", [AugmentSettings(), ACDC], ids=["rotate-flip", "both"])
def test_channels_and_label_get_the_same_augmentation(
    tmp_path: Path, shapes: list[Shape], patch: Shape, channels: int, augment: AugmentSettings
) -> None:
    store = build(tmp_path / "store", shapes, shapes, channels=channels)
    batches = batches_of(store, patch, augment=augment, labeled=3, unlabeled=5)
    for step in range(8):
        batch = batches.at(0, step)
        images, labels = batch.labeled.images, batch.labeled.labels
        assert images.shape == (3, channels, *patch) and images.dtype == torch.float32
        assert labels.shape == (3, *patch) and labels.dtype == torch.int64
        assert batch.unlabeled.shape == (5, channels, *patch) and batch.unlabeled.dtype == torch.float32
        assert images.device == labels.device == batch.unlabeled.device == CPU
        assert torch.equal(labels, images[:, 0].long() % 4)
        for both in (images, batch.unlabeled):
            assert (both > 0).any()
            if channels == 2:
                assert torch.equal(both[:, 1], torch.where(both[:, 0] > 0, 2000 - both[:, 0], 0))


@given(data=st.data(), channels=st.integers(1, 2), axes=st.integers(2, 3), slices=st.booleans())
@settings(deadline=None, max_examples=40)
def test_gather_is_slicing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, channels: int, axes: int, slices: bool
) -> None:
    """Compare patches of every unit at positions inside, partly outside and completely outside of the scan."""
    slices = slices and axes == 2
    sizes = st.tuples(*[st.integers(1, 7)] * (3 if slices else axes))
    patch = data.draw(st.tuples(*[st.integers(1, 9)] * axes))
    shapes = data.draw(st.lists(sizes, min_size=1, max_size=3))
    store = build(tmp_path_factory.mktemp("stores") / "s", shapes, channels=channels)
    stream = Stream(store, store.cases, patch, labels=True, device=CPU)
    scans = [np.asarray(store.image(case)) for case in store.cases]
    units = [scan[..., z] for scan in scans for z in range(scan.shape[-1])] if slices else scans
    assert len(stream) == len(units)
    start = np.array([data.draw(st.tuples(*[st.integers(-10, 8)] * axes)) for _ in units])
    linear = np.repeat(np.eye(2, dtype=np.float32)[None], len(units), axis=0)
    table = torch.from_numpy(stream.table(np.arange(len(units)), Draw(linear, start)))
    images, labels = stream.gather(table)
    assert labels is not None
    for unit, place, image, label in zip(units, start, images, labels, strict=True):
        np.testing.assert_array_equal(image.numpy(), cut(unit, place, patch))
        np.testing.assert_array_equal(label.numpy(), cut(unit % 4, place, patch)[0])


def test_slices_are_along_the_last_axis(tmp_path: Path) -> None:
    store = build(tmp_path / "s", [(6, 7, 5), (7, 6, 2)])
    batches = batches_of(store, (6, 6), labeled=3)
    assert batches.labeled.case_of.tolist() == [0] * 5 + [1] * 2
    assert batches.labeled.shapes.tolist() == [[6, 7]] * 5 + [[7, 6]] * 2
    assert batches.steps_per_epoch == 2


def test_an_epoch_shows_each_labeled_case_once_and_drops_the_remainder(tmp_path: Path) -> None:
    batches = batches_of(build(tmp_path / "s", [(6, 6)] * 10, [(6, 6)] * 3, constant=True), (4, 4))
    assert batches.steps_per_epoch == 2
    epochs = [epoch_of(batches, epoch)[0] for epoch in range(12)]
    for epoch in epochs:
        assert len(epoch) == len(set(epoch)) == 8
        assert set(epoch) <= set(range(1, 11))
    assert len({tuple(epoch) for epoch in epochs}) == 12
    assert {number for epoch in epochs for number in epoch} == set(range(1, 11))


def test_unlabeled_cases_come_from_permutations_that_restart_with_each_epoch(tmp_path: Path) -> None:
    store = build(tmp_path / "s", [(6, 6)] * 6, [(6, 6)] * 5, constant=True)
    batches = batches_of(store, (4, 4), labeled=2, unlabeled=4)
    assert batches.steps_per_epoch == 3
    links: set[tuple[int, ...]] = set()
    for epoch in range(8):
        chain = epoch_of(batches, epoch)[1]
        assert len(chain) == 12
        assert set(chain[:5]) == set(chain[5:10]) == set(range(101, 106))
        assert chain[10] != chain[11]
        links |= {tuple(chain[:5]), tuple(chain[5:10])}
    assert len(links) > 10


@given(labeled=st.integers(1, 9), size=st.integers(1, 9), others=st.integers(1, 9), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_cases_are_seen_equally_often(
    tmp_path_factory: pytest.TempPathFactory, labeled: int, size: int, others: int, seed: int
) -> None:
    store = build(tmp_path_factory.mktemp("stores") / "s", [(3, 3)] * labeled, [(3, 3)] * others, constant=True)
    batches = batches_of(store, (2, 2), seed, labeled=size, unlabeled=3)
    assert batches.steps_per_epoch == max(1, labeled // size)
    for epoch in range(2):
        shown, chain = epoch_of(batches, epoch, stage=1)
        assert len(shown) == batches.steps_per_epoch * size
        for numbers_, count, first in ((shown, labeled, 1), (chain, others, 101)):
            times = Counter(numbers_)
            seen = [times[first + index] for index in range(count)]
            assert sum(seen) == len(numbers_)
            assert max(seen) - min(seen) <= 1


def test_fewer_labeled_cases_than_the_batch_size(tmp_path: Path) -> None:
    batches = batches_of(build(tmp_path / "s", [(6, 6)] * 2, constant=True), (4, 4), labeled=5)
    assert batches.steps_per_epoch == 1
    for step in range(4):
        shown = numbers(batches.at(0, step, unlabeled=False).labeled.images)
        assert sorted(Counter(shown).values()) == [2, 3]
        assert set(shown[:2]) == set(shown[2:4]) == {1, 2}


def test_a_batch_depends_only_on_seed_stage_and_step(tmp_path: Path) -> None:
    store = build(tmp_path / "s", [(9, 9, 5)] * 5, [(9, 9, 5)] * 6)
    batches = batches_of(store, (6, 6, 4), seed=3, augment=ACDC, labeled=2)
    first = batches.at(1, 7)
    for step in (0, 9, 3):
        batches.at(0, step, unlabeled=step == 9)
    assert same(batches.at(1, 7), first)
    assert same(batches_of(store, (6, 6, 4), seed=3, augment=ACDC, labeled=2).at(1, 7), first)
    others = [batches.at(1, 8), batches.at(0, 7), batches.at(7, 1)]
    others.append(batches_of(store, (6, 6, 4), seed=4, augment=ACDC, labeled=2).at(1, 7))
    for other in others:
        assert not torch.equal(other.labeled.images, first.labeled.images)
        assert not torch.equal(other.unlabeled, first.unlabeled)


def test_order_and_crop_differ_between_seeds_stages_epochs_and_streams(tmp_path: Path) -> None:
    """Constant scans identify the case, and patches larger than the scan show the crop position."""
    store = build(tmp_path / "s", [(3, 3)] * 8, [(3, 3)] * 8, constant=True)
    orders, places = set(), set()
    for seed, stage, step in product(range(2), range(2), range(2)):
        batch = batches_of(store, (16, 16), seed, labeled=8, unlabeled=8).at(stage, step)
        for part in (batch.labeled.images, batch.unlabeled):
            orders.add(tuple(int(image.max()) % 100 for image in part))
            places.add((part > 0).numpy().tobytes())
    assert len(orders) == len(places) == 16


def test_without_unlabeled_the_labeled_part_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = batches_of(build(tmp_path / "s", [(6, 6, 5)] * 4, [(6, 6, 5)] * 4, channels=2), (4, 4, 4))
    whole, gathered = batches.at(0, 2), []
    gather = Stream.gather

    def counted(stream: Stream, table: Tensor) -> tuple[Tensor, Tensor | None]:
        gathered.append(stream)
        return gather(stream, table)

    monkeypatch.setattr(Stream, "gather", counted)
    batch = batches.at(0, 2, unlabeled=False)
    assert gathered == [batches.labeled]
    assert batch.unlabeled.shape == (0, 2, 4, 4, 4) and batch.unlabeled.dtype == torch.float32
    assert torch.equal(batch.labeled.images, whole.labeled.images)
    assert torch.equal(batch.labeled.labels, whole.labeled.labels)


@pytest.mark.parametrize(("scans", "size"), [(0, 4), (1, 0)])
def test_no_unlabeled_scans_or_no_unlabeled_images_per_batch(tmp_path: Path, scans: int, size: int) -> None:
    batches = batches_of(build(tmp_path / "s", [(6, 6)] * 2, [(6, 6)] * scans), (4, 4), unlabeled=size)
    with user_error(Code.TOO_FEW_CASES, keyword="imagesUn"):
        batches.at(0, 0)
    assert len(batches.at(0, 0, unlabeled=False).labeled.images) == 4
    assert (batches.center_patches(3) is None) == (scans == 0)
    assert batches.names_at(0, 0) == ["case001", "case002"]


@pytest.mark.parametrize(
    ("limits", "labeled", "unlabeled", "validation"),
    [
        ({}, "123456", "ab", ""),
        ({"labeled_cases": 2}, "12", "3456ab", ""),
        ({"validation_cases": 2}, "1234", "ab", "56"),
        ({"labeled_cases": 3, "validation_cases": 2}, "123", "4ab", "56"),
        ({"labeled_cases": 4, "validation_cases": 2}, "1234", "ab", "56"),
        ({"labeled_cases": 1, "validation_cases": 5}, "1", "ab", "23456"),
        ({"labeled_cases": 6}, "123456", "ab", ""),
    ],
)
def test_roles_of_cases(tmp_path: Path, limits: dict[str, Any], labeled: str, unlabeled: str, validation: str) -> None:
    store = build(tmp_path / "s", [(4, 4)] * 6, [(4, 4)] * 2)
    cases = training_cases(store, BatchSettings.model_validate({"patch": (4, 4), **limits}))
    letters = dict(zip((case.name for case in store.cases), "123456ab", strict=True))
    roles = [cases.labeled, cases.unlabeled, cases.validation]
    assert ["".join(letters[case.name] for case in role) for role in roles] == [labeled, unlabeled, validation]
    batches = batches_of(store, (4, 4), **limits)
    assert batches.unlabeled is not None
    assert [batches.labeled.names, batches.unlabeled.names] == [[case.name for case in role] for role in roles[:2]]


@pytest.mark.parametrize(
    ("limits", "asked"),
    [
        ({"labeled_cases": 4}, "4 labeled and 0 validation"),
        ({"labeled_cases": 2, "validation_cases": 2}, "2 labeled and 2 validation"),
        ({"validation_cases": 3}, "1 labeled and 3 validation"),
        ({"validation_cases": 9}, "1 labeled and 9 validation"),
    ],
)
def test_too_few_labeled_cases(tmp_path: Path, limits: dict[str, Any], asked: str) -> None:
    store = build(tmp_path / "store", [(4, 4)] * 3, [(4, 4)])
    with user_error(Code.TOO_FEW_CASES, store.path, asked):
        batches_of(store, (4, 4), **limits)


@pytest.mark.parametrize("garbage", [b"", b"not an array", None])
def test_labels_of_cases_used_without_them_are_never_opened(tmp_path: Path, garbage: bytes | None) -> None:
    intact = build(tmp_path / "intact", [(6, 6)] * 5, [(6, 6)])
    store = build(tmp_path / "store", [(6, 6)] * 5, [(6, 6)])
    for case in store.cases[2:5]:
        path = store.path / CASES / str(case.label)
        path.unlink()
        if garbage is not None:
            path.write_bytes(garbage)
    limits: dict[str, Any] = {"labeled_cases": 2, "validation_cases": 1}
    expected, batches = (batches_of(kept, (4, 4), **limits) for kept in (intact, store))
    assert all(same(expected.at(0, step), batches.at(0, step)) for step in range(5))
    assert batches.center_patches(3) is not None
    with user_error(Code.DAMAGED_FILE, "case003.label.npy"):
        batches_of(store, (4, 4), labeled_cases=3)


def test_names_at(tmp_path: Path) -> None:
    store = build(tmp_path / "s", [(6, 6)] * 9, [(6, 6)] * 9, constant=True)
    batches = batches_of(store, (4, 4), labeled=2, unlabeled=3)
    for step in range(6):
        batch = batches.at(1, step)
        labeled, unlabeled = (
            {f"case{n:03d}" for n in numbers(part)} for part in (batch.labeled.images, batch.unlabeled)
        )
        assert batches.names_at(1, step) == sorted(labeled | unlabeled)
        assert batches.names_at(1, step, unlabeled=False) == sorted(labeled)
    slices = batches_of(build(tmp_path / "t", [(6, 6, 8)], [(6, 6, 8)]), (4, 4))
    assert slices.names_at(0, 0) == ["case001", "case101"]


@pytest.mark.parametrize("patch", [(4, 4, 3), (8, 9, 7), (5, 4, 2)])
def test_center_patches_of_the_first_unlabeled_scans(tmp_path: Path, patch: Shape) -> None:
    store = build(tmp_path / "s", [(6, 6, 5)], [(6, 7, 5), (9, 5, 4), (5, 5, 5)], channels=2)
    batches = batches_of(store, patch, augment=AugmentSettings())
    patches = batches.center_patches(2)
    assert patches is not None
    assert patches.shape == (2, 2, *patch)
    for case, image in zip(store.of("unlabeled"), patches.numpy(), strict=False):
        start = [center_start(n, wanted) for n, wanted in zip(case.shape, patch, strict=True)]
        np.testing.assert_array_equal(image, cut(np.asarray(store.image(case)), start, patch))
    batches.at(0, 0)
    again, all_of_them = batches.center_patches(2), batches.center_patches(9)
    assert again is not None and all_of_them is not None
    assert torch.equal(again, patches)
    assert len(all_of_them) == 3


def test_center_patches_of_volumes_are_middle_slices(tmp_path: Path) -> None:
    store = build(tmp_path / "s", [(6, 6, 5)], [(6, 6, 5), (6, 6, 4), (6, 6, 1)])
    patches = batches_of(store, (6, 6)).center_patches(3)
    assert patches is not None
    for case, middle, image in zip(store.of("unlabeled"), (2, 2, 0), patches.numpy(), strict=True):
        np.testing.assert_array_equal(image, np.asarray(store.image(case))[..., middle])


@for_each(
    "wrong",
    [
        {"patch": (0, 4)},
        {"patch": (-4, 4)},
        {"patch": (4,)},
        {"patch": (4, 4, 4, 4)},
        {"labeled": 0},
        {"unlabeled": -1},
        {"labeled_cases": 0},
        {"validation_cases": -1},
        {"size": 4},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        BatchSettings.model_validate({"patch": (4, 4), **wrong})


@pytest.mark.parametrize(("shape", "patch"), [((20, 16), (16, 16)), ((14, 12, 6), (12, 12)), ((14, 12, 8), (8, 8, 8))])
def test_from_scans_to_batches(tmp_path: Path, shape: Shape, patch: Shape) -> None:
    write_phantoms(tmp_path / "scans", shape=shape, counts={"labeled": 3, "unlabeled": 2, "test": 1}, seed=0, shift=0.5)
    dimensions = PrepareSettings.model_validate({"dimensions": len(patch)})
    store = prepare(read_layout(tmp_path / "scans"), tmp_path / "store", dimensions, workers=1)
    batches = batches_of(store, patch, augment=AugmentSettings(), labeled=2, unlabeled=3, labeled_cases=2)
    assert batches.unlabeled is not None
    assert batches.labeled.names == ["labeled_000", "labeled_001"]
    assert batches.unlabeled.names == ["labeled_002", "unlabeled_000", "unlabeled_001"]
    drawn = [batches.at(0, step) for step in range(6)]
    assert torch.stack([batch.unlabeled for batch in drawn]).isfinite().all()
    labels = torch.stack([batch.labeled.labels for batch in drawn])
    assert set(labels.flatten().tolist()) == {0, 1, 2, 3}
    assert torch.stack([batch.labeled.images for batch in drawn]).std() > 0.5
