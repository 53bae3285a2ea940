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

from graftseg.core.errors import UserError
from graftseg.core.files import sha256_of
from graftseg.core.types import Geometry, Split
from graftseg.data.grid import Grid
from graftseg.data.store import CASES, LOCK, MANIFEST, Source, Store, StoredCase, is_store, open_store

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


def test_what_was_saved_is_opened(store: Store) -> None:
    assert open_store(store.path) == store
    assert is_store(store.path)


def test_arrays(store: Store) -> None:
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


def test_identity_is_that_of_the_content(store: Store) -> None:
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
    with pytest.raises(UserError, match=r"one\.label\.npy: the file is damaged.*run prepare again"):
        store.verify()
    path.unlink()
    with pytest.raises(UserError, match=r"one\.label\.npy: the file is missing; run prepare again"):
        store.verify()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: path.unlink(), "the file is missing"),
        (lambda path: path.write_bytes(b""), "the file is damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "the file is damaged"),
        (lambda path: path.write_bytes(path.read_bytes() + b"xy"), "the file is 2 bytes too long"),
        (lambda path: path.write_bytes(b"PK" + path.read_bytes()[2:]), "the file is damaged"),
        (lambda path: np.save(path, np.zeros((2, 3, 5, 4), np.float16)), r"holds float16 \(2, 3, 5, 4\) where"),
        (lambda path: np.save(path, np.zeros((2, *SHAPE), np.float32)), "holds float32"),
        (
            lambda path: np.save(path, np.zeros((5, 4, 3, 2), np.float16).T),
            r"holds float16 \(2, 3, 4, 5\) with the first axis innermost \(Fortran order\), not the last; delete it",
        ),
        (lambda path: (path.unlink(), path.mkdir()), "a folder is in the place of the file; move it elsewhere and run"),
        (lambda path: piped(path), "no plain file is in the place of the file; move it"),
        (lambda path: relinked(path, "nowhere"), "a link that leads to no file is in the place of the file; delete it"),
        (lambda path: relinked(path, path.name), "a link that leads to no file is in the place of the file; delete it"),
    ],
)
def test_files_that_do_not_fit(store: Store, damage: Callable[[Path], object], sentence: str) -> None:
    damage(store.path / CASES / "other.image.npy")
    with pytest.raises(UserError, match=r"other\.image\.npy: .*" + sentence):
        open_store(store.path)


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def relinked(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_file_that_must_not_be_read_is_not_called_damaged(
    store: Store, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """For root too, which has every right."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "file")

    sentence = rf"one\.image\.npy: cannot be read \({os.strerror(number)}\); check disk and permissions\.$"
    with monkeypatch.context() as patched:
        patched.setattr(np.lib.format, "open_memmap", refuse)
        with pytest.raises(UserError, match=sentence):
            open_store(store.path)
    monkeypatch.setattr("graftseg.data.store.sha256_of", refuse)
    with pytest.raises(UserError, match=sentence):
        store.verify()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 127), bit=st.integers(0, 7))
def test_any_bit_of_a_header_may_flip(store: Store, place: int, bit: int) -> None:
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
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda content: content.update(version=2), "the store has format 2, this program reads 1"),
        (lambda content: content.update(format="x"), "not the manifest of a prepared store"),
        (lambda content: content.pop("classes"), "the manifest is damaged at classes"),
        (lambda content: content["cases"][0].update(split="train"), r"damaged at cases\.0\.split"),
        (lambda content: content["cases"][1].update(shape="x"), r"damaged at cases\.1\.shape"),
        (lambda content: content["cases"][1].update(image="../cases/x.npy"), "x.npy is not a file name"),
        (lambda content: content["cases"][1].update(name="../x"), r"\.\./x is not a file name"),
        (lambda content: content["cases"][1].update(sha256={}), "the hash of a file of other is missing"),
        (lambda content: content["cases"][1].update(channels=3), r"manifest is damaged \(other has other channels or"),
        (lambda content: content.update(classes=["background"]), "one has other channels or classes than the store"),
        (lambda content: content["cases"][0]["grid"].update(order=[0, 0, 1]), r"cases\.0\.grid .* the same axes"),
        (lambda content: content["cases"][0]["grid"].update(flips=[True]), r"cases\.0\.grid .* the same axes"),
        (lambda content: content["cases"][0]["geometry"].update(shape=[5, 4]), "the grid of one is not that of its"),
        (lambda content: content["cases"][0]["geometry"].update(affine=[[0] * 4] * 4), "places no voxels"),
        (lambda content: content["cases"][0]["geometry"].update(units="mile"), "places no voxels"),
        (lambda content: content["cases"].append(content["cases"][0]), r"damaged \(the case one is listed 2 times\)"),
        (lambda content: content["cases"].append(content["cases"][1]), r"damaged \(the case other is listed 2 times\)"),
        (lambda content: content["cases"].append(content["cases"][0] | {"split": "test"}), "one is listed 2 times"),
        (lambda content: content["cases"][0].update(label=None), "one is a labeled case without a label map"),
        (
            lambda content: content["cases"][0].update(label=None, split="validation"),
            "one is a validation case without",
        ),
        (lambda content: content["classes"].append("liver"), r"damaged \(2 classes are called liver\); run prepare"),
        (lambda content: content["classes"].append("\x1b[31mred"), "the class '.*' has control characters in its name"),
        (lambda content: content["classes"].extend(map(str, range(253))), "256 classes, at most 255 are supported"),
        (lambda content: content.update(dimensions=2), "dimensions is 2, and 3 in the settings"),
        (lambda content: content.update(dimensions=5, settings={}), "dimensions is 5, neither 2 nor 3"),
    ],
)
def test_manifests_that_do_not_fit(store: Store, change: Callable[[dict[str, Any]], object], sentence: str) -> None:
    edit(store, change)
    with pytest.raises(UserError, match=sentence):
        open_store(store.path)


def test_slices_in_a_store_of_volumes(store: Store) -> None:
    flat = Grid((5, 4), (1, 0), (True, False), (4, 5), (1.0, 2.0))
    case = replace(store.cases[1], shape=(4, 5), grid=flat, geometry=Geometry((5, 4), AFFINE))
    with pytest.raises(ValueError, match="other has 2 axes in a store of 3 dimensions"):
        replace(store, cases=(case,))
    sliced = replace(store, dimensions=2, settings={}, cases=(case, store.cases[0]))
    assert [len(one.shape) for one in sliced.cases] == [2, 3]


def test_a_manifest_that_is_not_json(store: Store) -> None:
    (store.path / MANIFEST).write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        open_store(store.path)


def test_folders_that_are_no_store(tmp_path: Path) -> None:
    assert not is_store(tmp_path)
    assert not is_store(tmp_path / "absent")
    with pytest.raises(UserError, match=r"not a prepared store, it has no manifest\.json; make one with prepare"):
        open_store(tmp_path)
    (tmp_path / MANIFEST).write_text("[]")
    assert not is_store(tmp_path)
    (tmp_path / MANIFEST).unlink()
    (tmp_path / LOCK).touch()
    assert is_store(tmp_path)
    with pytest.raises(UserError, match="the store is unfinished; run prepare again, it goes on where it"):
        open_store(tmp_path)


def test_a_case_travels_as_json(store: Store) -> None:
    for case in store.cases:
        assert StoredCase.from_json(json.loads(json.dumps(case.to_json()))) == case
