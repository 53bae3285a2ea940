"""ACDC with validation patients as test scans, for the development of plans: ``long_plans.py --families`` reads this.

The folder of the published h5 files is in the environment variable ``ACDC``.
"""

import os
import random
from functools import partial
from pathlib import Path

from benchmarks_to_nifti import write_cases

from graftseg.data.benchmarks import read_benchmark

PATIENTS, UNLABELED = 3, 60


def validation_split(out: Path, seed: int, *, all_labeled: bool, first: int) -> None:
    """Write the labels of three patients of the training list from number ``first``, and 60 other random scans."""
    if all_labeled:
        raise ValueError("only a few patients can be labeled")
    dataset = read_benchmark("acdc", Path(os.environ["ACDC"]))
    train = list(dataset.of("labeled"))
    labeled = train[2 * first : 2 * (first + PATIENTS)]
    rest = [case for case in train if case not in labeled]
    random.Random(seed).shuffle(rest)
    write_cases(dataset, out, labeled, rest[:UNLABELED], dataset.of("validation"))


FAMILIES = {"acdc_val": partial(validation_split, first=0), "acdc_b": partial(validation_split, first=3)}
