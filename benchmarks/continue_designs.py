"""Compare designs of ``graftseg train --continue-from`` on MSD Hippocampus, with few steps on one CPU core.

``python benchmarks/continue_designs.py DATA --work WORK --results FILE.json``. DATA is the folder Task04_Hippocampus. A
network is trained with 3 labels, then 3 more scans are labeled. Each design trains with these 6 labels, and all
networks are scored on the same 20 test scans. Finished runs in WORK are used again.
"""

import argparse
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from annotation_loop import RECIPE, Settings, write_split

import graftseg
from graftseg.core.files import write_json
from graftseg.core.run_folder import RunFolder

SMALL = ("data.spacing=[1.5,1.5,1.5]", "batches.patch=[24,40,24]")
STEPS, RATE, LOW_RATE = (300, 200), 0.005, 0.0017


def lengths(first: int, last: int, rate: float) -> list[str]:
    """Return the overrides for the steps of both stages and their learning rate."""
    steps = [f"stages.0.steps={first}", f"stages.1.steps={last}"]
    return [*steps, *(f"stages.{index}.optimizer.learning_rate={rate}" for index in range(2))]


CONTINUED = {
    "all stages, a quarter of the steps": lengths(75, 50, RATE),
    "all stages, a quarter of the steps, a third of the rate": lengths(75, 50, LOW_RATE),
    "all stages, an eighth of the steps": lengths(38, 25, RATE),
    "last stage, a quarter of the steps": lengths(1, 124, RATE),
    "last stage, a quarter of the steps, a third of the rate": lengths(1, 124, LOW_RATE),
}
SCRATCH = {
    "from scratch, a quarter of the steps": lengths(75, 50, RATE),
    "from scratch, all steps": lengths(*STEPS, RATE),
}


def compare(settings: Settings, seed: int) -> dict[str, Any]:
    """Train the designs of one seed that are not trained yet, and return their scores."""
    root = settings.work / f"designs-{seed}"
    few, more, first = root / "scans-3", root / "scans-6", root / "first"
    if not few.exists():
        write_split(settings, seed, few)
        shutil.copytree(few, more)
        for path in sorted((more / "imagesUn").iterdir())[:3]:
            shutil.copy(settings.source / "labelsTr" / path.name, more / "labelsTr")
    base = [*SMALL, f"seed={seed}"]
    train = partial(graftseg.train, RECIPE, few, first, overrides=base + lengths(*STEPS, RATE))
    scores = {"3 labels, all steps": score(first, few, train)}
    for name, changes in CONTINUED.items():
        out = root / name.replace(" ", "-")
        more_training = partial(graftseg.continue_training, first, out, data=more, overrides=changes)
        scores[name] = score(out, more, more_training)
    for name, changes in SCRATCH.items():
        out = root / name.replace(" ", "-")
        scores[name] = score(out, more, partial(graftseg.train, RECIPE, more, out, overrides=base + changes))
    return {"seed": seed, "scores": scores}


def score(out: Path, data: Path, train: Callable[..., Any]) -> dict[str, float]:
    """Train unless the run is finished, and test it."""
    run = RunFolder(out)
    if not (run.exists and run.manifest().get("status") == "finished"):
        shutil.rmtree(out, ignore_errors=True)
        train(device="cpu")
    rows = graftseg.test(out, data, device="cpu").scores[out].rows
    found = {"dice": round(100 * fmean(row.dice for row in rows), 2), "seconds": run.manifest()["wall_seconds"]}
    print(json.dumps({"run": out.name, **found}), flush=True)
    return found


def main() -> None:
    """Compare the designs for all seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder Task04_Hippocampus")
    parser.add_argument("--work", type=Path, required=True, help="folder for data and runs, outside of the repository")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    work = given.work.resolve()
    settings = Settings(given.data.resolve(), work, given.results, labels=(3,), unlabeled=40, test=20)
    write_json(given.results, [compare(settings, seed) for seed in range(given.seeds)])


if __name__ == "__main__":
    main()
