"""Batches read from disk are identical to batches from memory."""

import gc
import logging
import threading
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from store_fakes import ACDC, NEVER, Shape, batches_of, build, same

from graftseg import api
from graftseg.core.errors import Code
from graftseg.data.augment import AugmentSettings, boxes_of
from graftseg.data.batches import Batches, BatchSettings
from graftseg.data.disk_batches import DiskBatches, DiskStream
from graftseg.data.store import CASES, Store, StoredCase
from user_errors import user_error

KINDS: list[tuple[list[Shape], Shape]] = [
    ([(9, 7), (5, 12), (16, 4)], (6, 6)),
    ([(9, 7, 3), (5, 12, 2), (16, 4, 1)], (6, 6)),
    ([(9, 7, 6), (5, 12, 9), (16, 4, 2)], (6, 6, 4)),
]


def pair(store: Store, patch: Shape, **options: Any) -> tuple[Batches, DiskBatches]:
    """Return the same batches from memory and from disk."""
    chosen = {"labeled": 2, "unlabeled": 2, "augment": AugmentSettings(), **options}
    return batches_of(store, patch, 5, **chosen), disk_batches_of(store, patch, **chosen)


def disk_batches_of(store: Store, patch: Shape, **options: Any) -> DiskBatches:
    chosen = BatchSettings.model_validate({"patch": patch, "labeled": 2, "unlabeled": 2, **options})
    return DiskBatches(store, chosen, seed=5, device="cpu")


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(
    "augment", [NEVER, ACDC, AugmentSettings(), AugmentSettings(rotate_flip=0, rotate=1, degrees=90)]
)
@pytest.mark.parametrize(("shapes", "patch"), KINDS)
def test_batches_equal_those_from_memory(
    tmp_path: Path, shapes: list[Shape], patch: Shape, augment: AugmentSettings, channels: int
) -> None:
    resident, from_disk = pair(build(tmp_path / "s", shapes, shapes[::-1], channels=channels), patch, augment=augment)
    for stage, unlabeled in ((0, False), (1, True)):
        for step in range(4):
            one, two = (batches.at(stage, step, unlabeled=unlabeled) for batches in (resident, from_disk))
            assert same(one, two)
            assert two.labeled.images.dtype == torch.float32 and two.labeled.labels.dtype == torch.int64
            assert one.unlabeled.shape == two.unlabeled.shape


@pytest.mark.parametrize(
    "options", [{"fit": "stretch"}, {"unlabeled_crop": "centre"}, {"order": "mirrored"}, {"labeled_cases": 1}]
)
def test_batches_are_equal_for_all_settings(tmp_path: Path, options: dict[str, Any]) -> None:
    shapes: list[Shape] = [(9, 7, 3), (5, 12, 2), (16, 4, 1)]
    resident, from_disk = pair(build(tmp_path / "s", shapes, shapes), (6, 8), augment=ACDC, **options)
    assert all(same(resident.at(1, step), from_disk.at(1, step)) for step in range(12))


@given(data=st.data(), axes=st.integers(2, 3), slices=st.booleans(), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=20)
def test_batches_are_equal_for_any_scan_and_patch_size(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, axes: int, slices: bool, seed: int
) -> None:
    """Scans are smaller and larger than the patch, so that patches are partly outside of them."""
    sizes = st.tuples(*[st.integers(1, 9)] * (3 if slices else axes))
    shapes = data.draw(st.lists(sizes, min_size=1, max_size=3))
    patch = data.draw(st.tuples(*[st.integers(1, 9)] * (2 if slices else axes)))
    store = build(tmp_path_factory.mktemp("stores") / "s", shapes, shapes, channels=2)
    resident, from_disk = pair(store, patch, augment=AugmentSettings(rotate_flip=0.4, rotate=1, degrees=180, margin=9))
    assert same(resident.at(0, seed), from_disk.at(0, seed))


@pytest.mark.parametrize(("shapes", "patch"), KINDS)
def test_names_and_center_patches_are_equal(tmp_path: Path, shapes: list[Shape], patch: Shape) -> None:
    resident, from_disk = pair(build(tmp_path / "s", shapes, shapes), patch)
    assert (resident.resident, from_disk.resident) == (True, False)
    assert (from_disk.device, from_disk.steps_per_epoch) == (resident.device, resident.steps_per_epoch)
    assert [from_disk.names_at(1, step) for step in range(5)] == [resident.names_at(1, step) for step in range(5)]
    one, two = resident.center_patches(2), from_disk.center_patches(2)
    assert one is not None and two is not None and torch.equal(one, two)
    assert from_disk.labeled.names == resident.labeled.names
    table = torch.from_numpy(from_disk.draw(0, 3))
    assert same(from_disk.gather(table), resident.at(0, 3))


def test_steps_in_any_order(tmp_path: Path) -> None:
    """Request steps of a resumed run, of the next stage, and in reverse order."""
    resident, from_disk = pair(build(tmp_path / "s", [(9, 7, 6)] * 3, [(8, 8, 8)] * 3), (6, 6, 4), augment=ACDC)
    asked = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 700), (1, 701), (0, 1), (0, 1), (0, 2)]
    for number, (stage, step) in enumerate(asked):
        unlabeled = number % 4 != 1
        one, two = (batches.at(stage, step, unlabeled=unlabeled) for batches in (resident, from_disk))
        assert same(one, two)


def test_only_the_box_around_the_patch_is_read(tmp_path: Path) -> None:
    """The box includes one extra voxel on each side in the plane."""
    from_disk = disk_batches_of(
        build(tmp_path / "s", [(40, 40, 40)] * 2, channels=2), (6, 5, 4), augment=AugmentSettings()
    )
    table = from_disk.draw(0, 0, unlabeled=False)
    boxes = from_disk.labeled.read(table)
    assert boxes.labels is not None
    ends, most = 2 * 4, 2 * 8 * 8 * 4
    assert boxes.images.dtype == torch.float16 and len(boxes.images) <= 2 * most + ends
    assert boxes.labels.dtype == torch.uint8 and len(boxes.labels) <= most + ends
    first, shape = boxes_of(table[:, :-3], (6, 5, 4))
    assert (first >= 0).all() and (first + shape <= 40).all() and (shape[:, 2] == 4).all()


def test_slices_are_read_separately(tmp_path: Path) -> None:
    from_disk = disk_batches_of(build(tmp_path / "s", [(9, 9, 50)]), (9, 9), fit="stretch")
    boxes = from_disk.labeled.read(from_disk.draw(0, 0, unlabeled=False))
    assert len(boxes.images) == 2 * 81 + 2


def spoil(store: Store, name: str) -> None:
    path = store.path / CASES / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["case003.image.npy", "case003.label.npy", "case102.image.npy"])
def test_a_damaged_file_stops_the_batch_that_needs_it(tmp_path: Path, name: str) -> None:
    store = build(tmp_path / "s", [(6, 6)] * 4, [(6, 6)] * 4)
    spoil(store, name)
    from_disk = disk_batches_of(store, (4, 4), order="mirrored")
    needs = [name[:7] in from_disk.names_at(0, step) for step in range(2)]
    assert sorted(needs) == [False, True]
    for step in range(2):
        if not needs[step]:
            assert len(from_disk.at(0, step).labeled.images) == 2
            continue
        with user_error(Code.DAMAGED_FILE, name, "checksum") as caught:
            from_disk.at(0, step)
        assert str(store.path) in caught.value.where


def test_a_file_is_verified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[str] = []

    def verify(store: Store, case: StoredCase, name: str) -> None:
        # a thread of another test may still be reading
        if store.path == tmp_path / "s":
            verified.append(name)

    monkeypatch.setattr(Store, "verify_file", verify)
    from_disk = disk_batches_of(build(tmp_path / "s", [(6, 6)] * 2, [(6, 6)]), (4, 4))
    assert not verified
    for step in range(6):
        from_disk.at(0, step)
    assert sorted(verified) == [f"case{n}.{k}.npy" for n, k in (("001", "image"), ("001", "label"))] + [
        f"case{n}.{k}.npy" for n, k in (("002", "image"), ("002", "label"), ("101", "image"))
    ]


def test_labels_of_unlabeled_cases_are_never_opened(tmp_path: Path) -> None:
    store = build(tmp_path / "s", [(6, 6)] * 4)
    for case in store.cases[2:]:
        (store.path / CASES / str(case.label)).unlink()
    from_disk = disk_batches_of(store, (4, 4), labeled_cases=2)
    assert all(from_disk.at(0, step).unlabeled.all() for step in range(4))


def test_no_unlabeled_scans(tmp_path: Path) -> None:
    from_disk = disk_batches_of(build(tmp_path / "s", [(6, 6)] * 2), (4, 4))
    with user_error(Code.TOO_FEW_CASES, keyword="imagesUn"):
        from_disk.at(0, 0)
    assert from_disk.center_patches(2) is None


def test_the_thread_ends_with_the_batches(tmp_path: Path) -> None:
    from_disk = disk_batches_of(build(tmp_path / "s", [(6, 6)] * 2, [(6, 6)]), (4, 4))
    from_disk.at(0, 0)
    assert is_reading()
    del from_disk
    gc.collect()
    end = monotonic() + 5
    while is_reading() and monotonic() < end:
        sleep(0.001)
    assert not is_reading()


def is_reading() -> bool:
    return any(thread.name.startswith("graftseg batches") for thread in threading.enumerate())


def test_training_on_a_store_that_does_not_fit_reads_from_disk(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning is logged, and the weights are bit-identical."""
    recipe = tiny.tiny_recipe()
    api.train(recipe, store.path, tmp_path / "resident", device="cpu")
    assert "from disk" not in caplog.text
    read: list[int] = []
    original = DiskStream.read

    def counted(stream: DiskStream, table: Any) -> Any:
        read.append(len(table))
        return original(stream, table)

    monkeypatch.setattr(DiskStream, "read", counted)
    monkeypatch.setattr("graftseg.training.run.free_memory", lambda device: 100)
    with caplog.at_level(logging.WARNING):
        api.train(recipe, store.path, tmp_path / "mapped", device="cpu")
    assert len(read) >= 4 + 2 * 5
    assert caplog.text.count("from disk") == 1
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("resident", "mapped"))
    assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def test_a_batch_of_the_same_case_twice(tmp_path: Path) -> None:
    """If a batch has more images than cases, a case is read several times."""
    resident, from_disk = pair(build(tmp_path / "s", [(9, 9, 5)], [(9, 9, 5)]), (4, 4, 4), labeled=5, unlabeled=3)
    assert same(resident.at(0, 1), from_disk.at(0, 1))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")
@pytest.mark.parametrize(("shapes", "patch"), [([(90, 70, 9)] * 3, (64, 64)), ([(90, 70, 60)] * 3, (64, 64, 48))])
def test_batches_on_a_gpu(tmp_path: Path, shapes: list[Shape], patch: Shape) -> None:
    """Pinned memory that is freed during an asynchronous copy must not be reused before the copy ends."""
    store = build(tmp_path / "s", shapes, shapes, channels=2)
    chosen = BatchSettings.model_validate({"patch": patch, "augment": ACDC})
    resident = Batches(store, chosen, seed=5, device="cuda")
    from_disk = DiskBatches(store, chosen, seed=5, device="cuda")
    assert from_disk.labeled.read(from_disk.draw(0, 0, unlabeled=False)).images.is_pinned()
    drawn = [from_disk.at(0, step) for step in range(20)]
    assert all(batch.labeled.images.is_cuda for batch in drawn)
    assert all(same(resident.at(0, step), batch) for step, batch in enumerate(drawn))
