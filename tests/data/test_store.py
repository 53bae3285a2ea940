import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json
from graftseg.core.reading import sha256_of
from graftseg.core.types import Geometry, Split
from graftseg.data.grid import Grid
from graftseg.data.store import ADAPTER, CASES, LOCK, MANIFEST, Source, Store, StoredCase, is_store, open_store
from user_errors import user_error

SHAPE = (3, 4, 5)
AFFINE = ((1.0, 0.0, 0.0, 0.5), (0.0, 2.0, 0.0, 0.0), (0.0, 0.0, 3.0, 0.0), (0.0, 0.0, 0.0, 1.0))


def stored(folder: Path, name: str, split: Split) -> StoredCase:
    (folder / CASES).mkdir(exist_ok=True)
    image, label = f"{name}.image.npy", f"{name}.label.npy" if split != "unlabeled" else None
    values = np.random.default_rng(len(name)).normal(size=(2, *SHAPE)).astype(np.float16)
    np.save(folder / CASES / image, values)
    if label:
        np.save(folder / CASES / label, np.arange(60, dtype=np.uint8).reshape(SHAPE) % 3)
    files = [image, label] if label else [image]
    return StoredCase(
        name=name,
        split=split,
        image=image,
        label=label,
        channels=2,
        shape=SHAPE,
        values=(0, 1, 2) if label else (),
        grid=Grid((5, 4, 3), (2, 1, 0), (True, False, False), SHAPE, (1.0, 2.0, 3.0)),
        geometry=Geometry((5, 4, 3), AFFINE),
        sources={f"imagesTr/{name}.nii.gz": Source(10, 20, "ab")},
        sha256={file: sha256_of(folder / CASES / file) for file in files},
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    cases = (stored(tmp_path, "one", "labeled"), stored(tmp_path, "other", "unlabeled"))
    classes = ("background", "liver", "tumour")
    made = Store(tmp_path, "data", {"dimensions": 3}, classes, 2, 3, cases)
    made.save()
    return made


def test_a_saved_store_opens_again(store: Store) -> None:
    assert open_store(store.path) == store
    assert is_store(store.path)


def test_arrays_are_read_only_memory_maps(store: Store) -> None:
    one, other = store.cases
    assert store.of("labeled") == (one,)
    assert store.of("test") == ()
    assert store.image(other).shape == (2, *SHAPE)
    assert store.image(one).dtype == np.float16
    assert isinstance(store.image(one), np.memmap)
    np.testing.assert_array_equal(store.label(one).ravel()[:4], [0, 1, 2, 0])
    with pytest.raises(ValueError, match="read-only"):
        store.label(one)[0] = 1
    with pytest.raises(ValueError, match="case other has no label"):
        store.label(other)


def test_saving_the_same_again_writes_nothing(store: Store) -> None:
    before = (store.path / MANIFEST).stat().st_mtime_ns
    store.save()
    assert (store.path / MANIFEST).stat().st_mtime_ns == before


def test_identity_depends_on_the_content_only(store: Store) -> None:
    moved = replace(store, path=Path("elsewhere"), root="other")
    one, other = store.cases
    touched = replace(one, sources={"x.nii": Source(1, 2, "cd")})
    assert moved.identity == store.identity
    assert replace(store, cases=(touched, other)).identity == store.identity
    assert replace(store, cases=(replace(one, split="test"), other)).identity != store.identity
    assert replace(store, cases=(one, replace(other, sha256={other.image: "0"}))).identity != store.identity
    assert replace(store, settings={"dimensions": 3, "spacing": None}).identity != store.identity
    assert len(store.identity) == 64


def test_identity_does_not_depend_on_test_cases(store: Store) -> None:
    more = replace(store, cases=(*store.cases, stored(store.path, "third", "test")))
    assert more.identity == store.identity
    assert replace(store, cases=(*store.cases, stored(store.path, "third", "labeled"))).identity != store.identity


def test_verify_names_the_damaged_file(store: Store) -> None:
    store.verify()
    path = store.path / CASES / "one.label.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    open_store(store.path)
    with user_error(Code.DAMAGED_FILE, path, "checksum"):
        store.verify()
    path.unlink()
    with user_error(Code.DAMAGED_FILE, path, "missing"):
        store.verify()


@pytest.mark.parametrize(
    ("damage", "keyword"),
    [
        (lambda path: path.unlink(), "missing"),
        (lambda path: path.write_bytes(b""), "damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "damaged"),
        (lambda path: path.write_bytes(b"PK" + path.read_bytes()[2:]), "damaged"),
        (lambda path: np.save(path, np.zeros((2, 3, 5, 4), np.float16)), "float16 (2, 3, 5, 4) instead"),
        (lambda path: np.save(path, np.zeros((2, *SHAPE), np.float32)), "float32"),
        (lambda path: np.save(path, np.zeros((5, 4, 3, 2), np.float16).T), "damaged"),
        (lambda path: (path.unlink(), path.mkdir()), "missing"),
        (lambda path: piped(path), "missing"),
        (lambda path: relinked(path, "nowhere"), "missing"),
        (lambda path: relinked(path, path.name), "missing"),
    ],
)
def test_damaged_files_are_found_on_opening(store: Store, damage: Callable[[Path], object], keyword: str) -> None:
    damage(store.path / CASES / "other.image.npy")
    with user_error(Code.DAMAGED_FILE, "other.image.npy", keyword):
        open_store(store.path)


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def relinked(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_read_error_is_not_reported_as_damage(store: Store, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "file")

    with monkeypatch.context() as patched:
        patched.setattr(np.lib.format, "open_memmap", refuse)
        with user_error(Code.READ_FAILED, "one.image.npy", os.strerror(number)):
            open_store(store.path)
    monkeypatch.setattr("graftseg.data.store.sha256_of", refuse)
    with user_error(Code.READ_FAILED, "one.image.npy", os.strerror(number)):
        store.verify()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 127), bit=st.integers(0, 7))
def test_a_flipped_bit_in_a_header_is_a_user_error_or_harmless(store: Store, place: int, bit: int) -> None:
    path = store.path / CASES / "one.image.npy"
    intact = path.read_bytes()
    content = bytearray(intact)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    try:
        opened = open_store(store.path)
        assert opened.image(opened.cases[0]).shape == (2, *SHAPE)
    except UserError as error:
        assert "one.image.npy" in error.where
    finally:
        path.write_bytes(intact)


def edit(store: Store, change: Callable[[dict[str, Any]], object]) -> None:
    path = store.path / MANIFEST
    content = read_json(path)
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "code", "keyword"),
    [
        (lambda content: content.update(version=2), Code.NOT_A_STORE, "format 2"),
        (lambda content: content.update(format="x"), Code.NOT_A_STORE, "manifest"),
        (lambda content: content.pop("classes"), Code.DAMAGED_FILE, "classes"),
        (lambda content: content["cases"][0].update(split="train"), Code.DAMAGED_FILE, "cases.0.split"),
        (lambda content: content["cases"][1].update(shape="x"), Code.DAMAGED_FILE, "cases.1.shape"),
        (lambda content: content["cases"][1]["grid"].update(flips=[]), Code.DAMAGED_FILE, "cases.1.grid"),
        (lambda content: content["cases"][1]["grid"].update(order=[0, 0, 1]), Code.DAMAGED_FILE, "cases.1.grid"),
    ],
)
def test_invalid_manifests(store: Store, change: Callable[[dict[str, Any]], object], code: Code, keyword: str) -> None:
    edit(store, change)
    with user_error(code, store.path / MANIFEST, keyword):
        open_store(store.path)


def test_a_manifest_that_is_not_json(store: Store) -> None:
    (store.path / MANIFEST).write_text("{")
    with user_error(Code.DAMAGED_FILE, store.path / MANIFEST, "JSON"):
        open_store(store.path)


def test_folders_that_are_not_a_store(tmp_path: Path) -> None:
    assert not is_store(tmp_path)
    assert not is_store(tmp_path / "absent")
    with user_error(Code.NOT_A_STORE, tmp_path, "manifest.json"):
        open_store(tmp_path)
    (tmp_path / MANIFEST).write_text("[]")
    assert not is_store(tmp_path)
    (tmp_path / MANIFEST).unlink()
    (tmp_path / LOCK).touch()
    assert is_store(tmp_path)
    with user_error(Code.NOT_A_STORE, tmp_path, "unfinished"):
        open_store(tmp_path)


def test_a_case_is_the_same_after_json(store: Store) -> None:
    for case in store.cases:
        assert ADAPTER.validate_json(ADAPTER.dump_json(case)) == case
