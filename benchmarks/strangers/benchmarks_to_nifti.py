"""Write LA or ACDC as a folder of NIfTI files, so that ``graftseg plan`` treats the benchmark as ordinary scans.

The lists are the published ones. The first scans (LA) or patients (ACDC) of the training list keep their labels, as in
the recipes ``la-4`` and ``acdc-3``. The other training scans are unlabeled. Validation scans of ACDC are left out.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from graftseg.core.types import Case, Geometry
from graftseg.data.benchmarks import read_benchmark
from graftseg.data.dataset import Dataset
from graftseg.data.scans import write_label, write_scan

SCANS_PER_LABEL = {"la": 1, "acdc": 2}
"""Number of scans that one label counts for: a scan of LA, or a patient of ACDC with two frames."""


def write_benchmark(name: str, source: Path, out: Path, labeled: int) -> None:
    """Write the published split of a benchmark with ``labeled`` labeled scans (LA) or patients (ACDC).

    ``source`` is the folder of the published h5 files. These files contain no geometry, so voxel spacing and
    orientation are unknown. The NIfTI files have an identity affine, which means voxels of 1 mm. For ACDC this is
    wrong between slices, which are several millimeters apart.
    """
    dataset = read_benchmark(name, source)
    if dataset.problems:
        raise dataset.problems[0]
    train, count = dataset.of("labeled"), labeled * SCANS_PER_LABEL[name]
    write_cases(dataset, out, train[:count], train[count:], dataset.of("test"))


def write_cases(
    dataset: Dataset, out: Path, labeled: Sequence[Case], unlabeled: Sequence[Case], test: Sequence[Case]
) -> None:
    """Write cases as labeled, unlabeled and test scans."""
    for folder in ("imagesTr", "labelsTr", "imagesUn", "imagesTs", "labelsTs"):
        (out / folder).mkdir(parents=True)
    for case in labeled:
        _write_image(dataset, case, out / "imagesTr")
        _write_label(dataset, case, out / "labelsTr")
    for case in unlabeled:
        _write_image(dataset, case, out / "imagesUn")
    for case in test:
        _write_image(dataset, case, out / "imagesTs")
        _write_label(dataset, case, out / "labelsTs")


def _write_image(dataset: Dataset, case: Case, folder: Path) -> None:
    image = dataset.reader.image(case).array[0].astype(np.float32)
    write_scan(folder / f"{case.name}_0000.nii", image, _unit_geometry(image.shape))


def _write_label(dataset: Dataset, case: Case, folder: Path) -> None:
    label = dataset.reader.label(case).array
    write_label(folder / f"{case.name}.nii", label, _unit_geometry(label.shape))


def _unit_geometry(shape: tuple[int, ...]) -> Geometry:
    return Geometry(shape, tuple(tuple(row) for row in np.eye(4).tolist()))


def main() -> None:
    """Write one benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=SCANS_PER_LABEL)
    parser.add_argument("source", type=Path, help="folder of the published h5 files")
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--labeled", type=int, required=True, help="number of labeled scans (LA) or patients (ACDC)")
    arguments = parser.parse_args()
    write_benchmark(arguments.name, arguments.source, arguments.out, arguments.labeled)


if __name__ == "__main__":
    main()
