"""Copies of a trained run with other weights, to score further networks."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from graftseg.core.reading import sha256_of
from graftseg.core.run_folder import RunFolder
from graftseg.inference.model import save_weights

Weights = Mapping[str, Tensor]


def with_weights(run: RunFolder, weights: Weights, folder: Path) -> RunFolder:
    """Write a run folder with the recipe of ``run``, but other weights."""
    shutil.rmtree(folder, ignore_errors=True)
    copy = RunFolder(folder)
    copy.path.mkdir()
    copy.store.symlink_to(run.store.resolve(), target_is_directory=True)
    for file in (run.recipe_file, run.manifest_file, run.teacher_file):
        if file.is_file():
            shutil.copy(file, folder / file.name)
    save_weights(weights, copy.weights_file)
    copy.update_manifest({"weights": sha256_of(copy.weights_file)})
    return copy
