"""Small files that ask for much memory or time are refused, or read within 512 MiB and 10 seconds."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from bomb_dicom import DICOMS
from bomb_pictures import PICTURES
from bomb_streams import Make
from bomb_volumes import VOLUMES
from isolated import isolated
from part import Part
from small_data import write_data

from graftseg.data.layouts import read_layout
from graftseg.data.scans import read_scan
from graftseg.recipes.recipe import load_recipe

PROMISE = "a small file is read or refused, within 10 seconds and 512 MiB beyond its pixels"
SECONDS, MEMORY = 10.0, 512.0
EXTRA_MIB = {"png valid but large": 272.0}
"""MiB of pixels that a file really contains, which may be used in addition."""
PACKAGES = ("SimpleITK", "tifffile", "PIL.PngImagePlugin", "pydicom.pixels")
ALIASES = "".join(f"k{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
ALIASES = "k0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + ALIASES


def _recipe(folder: Path, *, text: str) -> Path:
    path = folder / "a.yaml"
    path.write_text(text)
    return path


def _chain(folder: Path) -> Path:
    """Write 500 recipes, each based on the next."""
    for number in range(500):
        (folder / f"r{number}.yaml").write_text(f"base: r{number + 1}\n")
    return folder / "r0.yaml"


def _dataset(folder: Path, *, text: str) -> Path:
    write_data(folder / "data")
    (folder / "data" / "dataset.json").write_text(text)
    return folder / "data"


TEXTS: dict[str, Make] = {
    "recipe aliases": partial(_recipe, text=ALIASES),
    "recipe merges": partial(_recipe, text=ALIASES.replace("k11: ", "name: ")),
    "recipe merge keys": partial(
        _recipe,
        text="a0: &a0 {x: 1}\n"
        + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9)),
    ),
    "recipe lists": partial(_recipe, text="a: " + "[" * 100_000),
    "recipe digits": partial(_recipe, text=f"seed: {'9' * 2_000_000}\n"),
    "recipe bases": _chain,
    "dataset.json lists": partial(_dataset, text='{"labels": ' + "[" * 200_000),
    "dataset.json objects": partial(_dataset, text='{"training": ' + '{"a":' * 100_000 + "1" + "}" * 100_001),
    "dataset.json digits": partial(_dataset, text='{"labels": {"a": ' + "9" * 2_000_000 + "}}"),
    "dataset.json labels": partial(
        _dataset, text=json.dumps({"labels": {f"c{number}": number for number in range(200_000)}})
    ),
}
READERS: tuple[tuple[dict[str, Make], Callable[[Path], Any]], ...] = (
    (VOLUMES, read_scan),
    (PICTURES, read_scan),
    (DICOMS, read_scan),
    ({name: make for name, make in TEXTS.items() if name.startswith("recipe")}, load_recipe),
    ({name: make for name, make in TEXTS.items() if name.startswith("dataset")}, read_layout),
)


def bombs(work: Path, seed: int, count: int) -> Part:
    """Read up to ``count`` files that ask for much memory or time, each in its own process."""
    part = Part("bombs", PROMISE)
    for package in PACKAGES:
        import_module(package)
    attempts = [(name, make, read) for made, read in READERS for name, make in made.items()]
    for name, make, read in Random(seed).sample(attempts, min(count, len(attempts))):
        folder = work / name.replace(" ", "-")
        folder.mkdir(parents=True)
        path = make(folder)
        ending = isolated(partial(_read, read, path), seconds=SECONDS, mib=MEMORY + EXTRA_MIB.get(name, 0.0))
        is_kept = ending.is_clean and ending.mib <= MEMORY + EXTRA_MIB.get(name, 0.0)
        reason = f"{ending.kind}, {ending.mib:.0f} MiB, {str(ending.detail).strip().splitlines()[-1]}"
        part.expect(is_kept, f"{name}: {reason}")
        part.measure("largest memory", ending.mib, "MiB")
        part.measure("longest time", ending.seconds, "s")
        shutil.rmtree(folder)
    return part


def _read(read: Callable[[Path], Any], path: Path) -> None:
    read(path)
