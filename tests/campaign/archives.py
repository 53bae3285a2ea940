"""Hostile zips: nothing is written outside of the given folders, and the other scans are still predicted."""

import shutil
from pathlib import Path
from random import Random

from command import Printed, command
from hostile_zips import EVIL, hostile_zip
from part import Part
from small_data import write_case, write_data, write_recipe

PROMISE = "a hostile zip writes nothing outside of the given folders and does not keep other scans from being predicted"
SLICES = 4


def archives(work: Path, seed: int, count: int) -> Part:
    """Predict and prepare hostile zips, each next to a good scan, in ``count`` commands."""
    part, random = Part("archives", PROMISE), Random(seed)
    data, recipe, run = write_data(work / "data", slices=SLICES), write_recipe(work / "recipe.yaml"), work / "run"
    trained = command("train", recipe, "--data", data, "--out", run)
    if trained.code:
        part.expect(False, f"training: {trained.error}")
        return part
    accepted, zips = 0, (count + 1) // 2
    for number in range(zips):
        folder = work / f"zip-{number}"
        drawn = _predict(part, folder, run, random)
        is_accepted = _prepare(part, folder, recipe, drawn)
        accepted += is_accepted
        shutil.rmtree(folder)
    part.notes["accepted"] = f"{accepted} of {zips} zips"
    return part


def _predict(part: Part, folder: Path, run: Path, random: Random) -> str:
    """Predict a folder with a zip and a good scan."""
    scans, out = folder / "scans", folder / "out"
    write_case(scans, None, "good", 9, slices=SLICES)
    drawn = hostile_zip(folder / "hostile_0000.zip", random)
    shutil.rmtree(folder / "slices")
    (folder / "hostile_0000.zip").rename(scans / "hostile_0000.zip")
    before = _tree(folder.parent, out)
    printed = command("predict", run, scans, "--out", out)
    failure = _failure(printed) or _outside(before, _tree(folder.parent, out))
    if failure is None and not (out / "good.nii.gz").is_file():
        failure = f"the other scan was not predicted: {printed.error.strip()}"
    part.expect(failure is None, f"predict, {drawn}: {failure}")
    return drawn


def _prepare(part: Part, folder: Path, recipe: Path, drawn: str) -> bool:
    """Prepare a data set with the zip as an unlabeled scan. Return whether it was accepted."""
    data, out = write_data(folder / "data", unlabeled=("c",), slices=SLICES), folder / "store"
    shutil.copy(folder / "scans" / "hostile_0000.zip", data / "imagesUn" / "hostile_0000.zip")
    before = _tree(folder.parent, out)
    printed = command("prepare", data, "--out", out, "--recipe", recipe)
    failure = _failure(printed) or _outside(before, _tree(folder.parent, out))
    if failure is None and (out / "manifest.json").is_file() != (printed.code == 0):
        failure = f"exit code {printed.code}, but the store is {'complete' if printed.code else 'unfinished'}"
    part.expect(failure is None, f"prepare, {drawn}: {failure}")
    return printed.code == 0


def _failure(printed: Printed) -> str | None:
    if not printed.is_clean:
        return printed.error.strip().splitlines()[-1]
    shown = (printed.out + printed.error).replace("\n", "").replace("\t", "")
    return None if shown.isprintable() else "control characters in the output"


def _tree(folder: Path, out: Path) -> set[tuple[str, int, int]]:
    """Return everything around a folder except for the output folder: paths, and sizes and times of files."""
    entries = [path for path in folder.rglob("*") if path != out and out not in path.parents]
    files = {path: path.lstat() for path in entries if path.is_symlink() or not path.is_dir()}
    found = {(str(path), info.st_size, info.st_mtime_ns) for path, info in files.items()}
    found |= {(str(path), 0, 0) for path in entries if path not in files}
    elsewhere = (Path("/"), Path.home(), Path.cwd(), *folder.parents)
    return found | {(str(path), 0, 0) for one in elsewhere for path in one.glob(f"{EVIL}*")}


def _outside(before: set[tuple[str, int, int]], after: set[tuple[str, int, int]]) -> str | None:
    changed = sorted({name for name, _, _ in before ^ after})
    return f"changed outside of the output folder: {', '.join(changed[:3])}" if changed else None
