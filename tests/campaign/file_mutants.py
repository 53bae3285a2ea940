"""Damaged scans: mutants of every format, and single flipped bits."""

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from files import SAMPLES, read, sample, write
from isolated import isolated
from mutants import mutants
from part import Part

from graftseg.core.errors import UserError

BATCH = 200
"""Number of damaged files that one forked process reads."""
MAX_SECONDS, MAX_MIB = 10, 512
"""Limits of a damaged file: time, and memory beyond its size, which is a few kilobytes."""
WITH_CHECKSUM = (
    *("png-gray8", "png-gray16", "png-palette-label", "png-rgb", "nii.gz"),
    *("nrrd-gzip", "nrrd-bzip2", "mha-zlib", "dicom-zip"),
)
"""Formats whose checksum covers all voxels."""
MakeCopies = Callable[[bytes], Iterator[bytes]]


def file_mutants(work: Path, seed: int, count: int) -> Part:
    """Read ``count`` mutants of every format."""
    part = Part("mutants of scans", f"a scan or an error message, within {MAX_SECONDS} s and {MAX_MIB} MiB")
    for name in SAMPLES:
        for start in range(0, count, BATCH):
            stop = min(count, start + BATCH)
            damaged = partial(_mutants, seed, start, stop)
            ending = isolated(partial(_read_all, work / f"{name}-{start}", name, damaged), seconds=600, mib=MAX_MIB)
            bad, seconds = (ending.detail["bad"], ending.detail["slowest"]) if ending.kind == "ok" else ({}, 0.0)
            part.measure("slowest file", seconds, "s")
            part.measure("memory", ending.mib, "MiB")
            for number in range(stop - start):
                failure = ending.detail if ending.kind != "ok" else bad.get(str(number))
                part.expect(failure is None, f"{name}, mutant {start + number}: {failure}")
    part.notes["formats"] = str(len(SAMPLES))
    return part


def bit_flips(work: Path, seed: int, count: int) -> Part:
    """Flip one bit of a file of every format, ``count`` times, and compare the voxels."""
    part, silent = Part("flipped bits in scans with a checksum", "no wrong voxels are returned"), []
    for name in SAMPLES:
        ending = isolated(partial(_read_all, work / name, name, partial(_flipped, seed, count)), seconds=900)
        changed = ending.detail["changed"] if ending.kind == "ok" else list(range(count))
        if name in WITH_CHECKSUM:
            for number in range(count):
                part.expect(
                    number not in changed,
                    f"{name}, flip {number}: {'wrong voxels' if ending.kind == 'ok' else ending.detail}",
                )
        elif changed:
            silent.append(f"{name} {len(changed)}")
    part.notes[f"wrong voxels in other formats, per {count} flips:"] = ", ".join(silent)
    return part


def _mutants(seed: int, start: int, stop: int, content: bytes) -> Iterator[bytes]:
    return islice(mutants(content, seed, stop), start, stop)


def _flipped(seed: int, count: int, content: bytes) -> Iterator[bytes]:
    rng = random.Random(seed)
    for _ in range(count):
        damaged = bytearray(content)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        yield bytes(damaged)


def _read_all(folder: Path, name: str, damaged: MakeCopies) -> dict[str, Any]:
    """Read damaged copies of a sample. Return failures by number, and the numbers of copies with other voxels."""
    files = sample(name)
    first = next(iter(files))
    write(folder, files)
    expected, bad, changed, slowest = read(folder, files).array, {}, [], 0.0
    for number, content in enumerate(damaged(files[first])):
        (folder / first).write_bytes(content)
        began = time.monotonic()
        try:
            if not np.array_equal(read(folder, files).array, expected):
                changed.append(number)
        except UserError:
            pass
        except BaseException as error:
            bad[number] = repr(error)[:300]
        took = time.monotonic() - began
        slowest = max(slowest, took)
        if took > MAX_SECONDS:
            bad[number] = f"{took:.1f} s"
    return {"bad": bad, "changed": changed, "slowest": slowest}
