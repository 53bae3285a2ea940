"""Measure preparation and storage of a CT of 512 x 512 x 300 voxels: bytes of the file and in the store, seconds.

CPU seconds are those of this process, and do not depend on other programs as much as the elapsed time does.
"""

import tempfile
import time
from pathlib import Path

import nibabel
import numpy as np

from graftseg.core.reading import sha256_of
from graftseg.data.prepare import prepare_image
from graftseg.data.scans import read_case
from graftseg.recipes.recipe import load_recipe

SHAPE, SPACING = (512, 512, 300), (0.8, 0.8, 1.5)
GRIDS = {"unchanged": None, "1.5 mm": (1.5, 1.5, 1.5), "2 mm": (2.0, 2.0, 2.0)}


def write_ct(path: Path) -> None:
    """Write a body of soft tissue with lungs and noise."""
    random = np.random.default_rng(0)
    x, y, z = np.ogrid[-1 : 1 : SHAPE[0] * 1j, -1 : 1 : SHAPE[1] * 1j, -1 : 1 : SHAPE[2] * 1j]
    body = (x / 0.8) ** 2 + (y / 0.6) ** 2 < 1
    lungs = (((np.abs(x) - 0.35) / 0.25) ** 2 + (y / 0.4) ** 2 + (z / 0.9) ** 2) < 1
    values = np.where(lungs, -850, np.where(body, 40, -1000)) + random.normal(0, 15, SHAPE)
    image = nibabel.Nifti1Image(values.astype(np.int16), np.diag([*SPACING, 1.0]))
    nibabel.save(image, path)


def main() -> None:
    """Print a line per grid."""
    recipe = load_recipe("default-3d/bcp")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ct.nii.gz"
        write_ct(path)
        print(f"file: {path.stat().st_size / 1e6:.0f} MB, {2 * np.prod(SHAPE) / 1e6:.0f} MB uncompressed")
        for name, spacing in GRIDS.items():
            settings = recipe.data.model_copy(update={"spacing": spacing})
            began, cpu = time.monotonic(), time.process_time()
            scan = read_case((path,), 1)
            read = time.process_time() - cpu
            image, _ = prepare_image(scan, settings)
            target = Path(folder) / "case.image.npy"
            np.save(target, image.astype(np.float16))
            sha256_of(target)
            cpu, seconds = time.process_time() - cpu, time.monotonic() - began
            size = target.stat().st_size / 1e6
            print(f"{name}: {image.shape[1:]}, {size:.0f} MB, {cpu:.1f} CPU s ({read:.1f} to read), {seconds:.1f} s")


if __name__ == "__main__":
    main()
