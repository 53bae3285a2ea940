"""Measure the peak memory while a large CT is predicted on a CPU, with several outputs in separate processes.

A scan of 512x512x600 voxels of 16 bits is written to a temporary folder. A tiny, untrained network with five classes
predicts it in windows of 96x96x96. The tiny network needs almost no memory, so the script also measures one forward
pass of four windows through the network of ``default-3d``. It takes about ten minutes on one core; with
``--shape 128 128 150`` it takes seconds.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from graftseg.core.files import write_json, write_text
from graftseg.core.reading import sha256_of
from graftseg.core.run_folder import FORMAT, RunFolder
from graftseg.core.types import Geometry
from graftseg.data.scans import write_scan
from graftseg.inference.ensemble import Ensemble
from graftseg.inference.inputs import sources_in
from graftseg.inference.label_maps import ExtraMaps
from graftseg.inference.model import build_method, save_weights
from graftseg.inference.predict import predict_scans
from graftseg.inference.prediction_settings import PredictionSettings
from graftseg.inference.predictor import host_bytes
from graftseg.recipes.recipe import parse_recipe

CPU, GIB = torch.device("cpu"), 2**30
CLASSES = ["background", "liver", "spleen", "kidney", "pancreas"]
WAYS: dict[str, tuple[ExtraMaps, list[float]]] = {
    "labels": (ExtraMaps(), [0, 0, 0]),
    "labels, resampled to 1 mm": (ExtraMaps(), [1.0, 1.0, 1.0]),
    "labels and probabilities": (ExtraMaps(probabilities=True), [0, 0, 0]),
}
"""Measured predictions: the additional maps, and the spacing of prepared scans (0 keeps the spacing)."""


def recipe_tree(spacing: list[float], width: int, levels: int) -> dict[str, object]:
    """Return a recipe with a 3-D network of the given size."""
    stage = {"optimizer": {"name": "adam", "learning_rate": 0.01, "schedule": {"name": "poly"}}}
    return {
        "name": "memory",
        "data": {"dimensions": 3, "spacing": [step or None for step in spacing]},
        "batches": {"patch": [96, 96, 96], "labeled": 2, "unlabeled": 2},
        "network": {"name": "vnet-bn", "width": width, "levels": levels},
        "stages": [{"method": "bcp", "steps": 1, **stage}],
        "inference": {"largest_component": True, "overlap": 0.25},
    }


def make_run(folder: Path, spacing: list[float]) -> RunFolder:
    """Write a finished run with untrained weights."""
    run, recipe = RunFolder(folder), parse_recipe(recipe_tree(spacing, 2, 2), "memory")
    torch.manual_seed(0)
    method = build_method(recipe, recipe.stages[-1], 1, len(CLASSES), CPU)
    save_weights(method.student.state_dict(), run.weights_file)
    write_text(run.recipe_file, recipe.to_yaml())
    store = {"identity": "none", "classes": CLASSES, "channels": 1}
    facts = {"store": store, "device": "cpu", "versions": {}, "started": "", "weights": sha256_of(run.weights_file)}
    write_json(run.manifest_file, {"format": FORMAT, "status": "finished", **facts})
    return run


def make_scan(path: Path, shape: tuple[int, ...]) -> None:
    """Write a scan of waves and noise in Hounsfield units, with the axes of a CT (left, posterior, superior)."""
    noise = np.random.default_rng(0)
    scan = np.empty(shape, np.int16)
    x, y = (np.sin(np.arange(size) / 40) for size in shape[:2])
    for z in range(shape[2]):
        scan[..., z] = 400 * np.add.outer(x, y) * np.cos(z / 50) + noise.integers(-50, 50, shape[:2])
    affine = np.diag([-0.8, -0.8, 1.0, 1.0])
    write_scan(path, scan, Geometry(shape, tuple(map(tuple, affine.tolist()))))


def predict(run: RunFolder, scan: Path, out: Path, way: str) -> dict[str, float]:
    """Predict the scan and return the measured and the estimated memory; called in a separate process."""
    wanted = WAYS[way][0]
    networks = Ensemble.load([run], CPU, (), "shipped")
    grid = sources_in(scan, networks.recipe.data, 1)[0][0].grid()
    begun, expected = peak(), host_bytes(grid, 1, networks.predictor, wanted)
    done = predict_scans(run, scan, out, CPU, PredictionSettings(extras=wanted))
    assert not done.failures, done.failures
    return {"begun": begun, "expected": begun + expected / GIB, "peak": peak(), "seconds": done.cases[0].seconds}


def forward() -> dict[str, float]:
    """Measure one forward pass of four windows through the default network; called in a separate process."""
    recipe = parse_recipe(recipe_tree([0, 0, 0], 16, 5), "memory")
    method = build_method(recipe, recipe.stages[-1], 1, len(CLASSES), CPU).eval()
    begun = peak()
    with torch.inference_mode():
        method.segment(torch.zeros(4, 1, 96, 96, 96))
    return {"begun": begun, "peak": peak()}


def peak() -> float:
    """Return the peak memory of this process in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def child(*arguments: str) -> dict[str, float]:
    """Run this script in a separate process and return the values in its last line."""
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return said


def main() -> None:
    """Write the scan, predict it with each output and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", nargs=3, type=int, default=[512, 512, 600])
    parser.add_argument("--only", choices=WAYS, help="Measure only this prediction.")
    parser.add_argument("--way", choices=[*WAYS, "forward"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way == "forward":
        print(json.dumps(forward()))
    elif given.way:
        run = make_run(given.folder / "run", WAYS[given.way][1])
        print(json.dumps(predict(run, given.folder / "scan.nii", given.folder / "out", given.way)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            make_scan(Path(folder) / "scan.nii", tuple(given.shape))
            print("prediction\tGiB before\tGiB estimated\tpeak GiB\tseconds")
            for number, way in enumerate([given.only] if given.only else WAYS):
                place = Path(folder) / str(number)
                place.mkdir()
                (place / "scan.nii").hardlink_to(Path(folder) / "scan.nii")
                said = child("--way", way, "--folder", str(place))
                row = (f"{said[key]:.2f}" for key in ("begun", "expected", "peak", "seconds"))
                print(way, *row, sep="\t", flush=True)
        said = child("--way", "forward")
        print(f"four windows through the default network\t{said['begun']:.2f}\t\t{said['peak']:.2f}\t")


if __name__ == "__main__":
    main()
