"""Train plans of an hour on a CPU quickly on a GPU, and score the run, its baseline and their averages.

``python benchmarks/strangers/long_plans.py prostate 6 --seed 0 --arm adam --results RESULTS --commit COMMIT`` plans
with the step times of a table for two cores, and trains the plan on the GPU. An arm changes some settings of the plan.
"""

import argparse
import importlib
import json
import shutil
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from averages import Networks, timing
from families import FAMILIES
from run import Job, record_of

import graftseg
from graftseg.core.devices import choose_device
from graftseg.core.run_folder import RunFolder
from graftseg.data.layouts import read_layout
from graftseg.planning.plans import make_plan

UNPASTED = ("stages.1.settings.direction=none",)
ADAM = (
    "stages.0.optimizer={name: adam, learning_rate: 0.001, schedule: {name: constant}}",
    "stages.1.optimizer={name: adam, learning_rate: 0.001, schedule: {name: poly}}",
)
ARMS: dict[str, tuple[str, ...]] = {
    "plan": (),
    "unpasted": UNPASTED,
    "adam": (*UNPASTED, *ADAM),
    "coarse": (*UNPASTED, *ADAM),
}
"""Changed settings by arm. ``coarse`` also has the resolution and the patch of a plan of 15 minutes."""


def train(
    job: Job, arm: str, changes: list[str], sources: dict[str, Path], work: Path, minutes: float, device: str
) -> dict[str, Any]:
    """Make the data of a job, plan for a CPU, train on the device and return the record."""
    folder = work / f"{job.name}-{arm}"
    shutil.rmtree(folder, ignore_errors=True)
    job.write(sources, folder / "scans")
    dataset = read_layout(folder / "scans")
    plan = make_plan(dataset, device="cpu", minutes=minutes, timed=False)
    (folder / "plan.yaml").write_text(plan.text)
    if arm == "coarse":
        short = make_plan(dataset, device="cpu", minutes=15, timed=False).recipe
        changes = [
            f"data.spacing={list(short.data.spacing or ())}",
            f"batches.patch={list(short.batches.patch)}",
            *changes,
        ]
    began, settings = time.monotonic(), [f"seed={job.seed}", *ARMS[arm], *changes]
    graftseg.train(folder / "plan.yaml", folder / "scans", folder / "run", overrides=settings, device=device)
    seconds = {"train": round(time.monotonic() - began, 1)}
    record = record_of(job, folder, minutes, device) | {"arm": arm, "settings": settings, "seconds": seconds}
    run = RunFolder(folder / "run")
    return record | {"timing": timing(run)} | Networks(run, folder / "scans", choose_device(device)).facts()


def main() -> None:
    """Train one job, unless it is recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="hippocampus or a family of phantoms")
    parser.add_argument("labeled", type=int)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--arm", choices=ARMS, default="plan")
    parser.add_argument("--set", action="append", default=[], help="further changed setting")
    parser.add_argument("--hippocampus", type=Path, help="folder with imagesTr and labelsTr of MSD Hippocampus")
    parser.add_argument("--families", help="module with more families of phantoms, in a dictionary FAMILIES")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/long"))
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--commit", required=True, help="commit to record")
    arguments = parser.parse_args()
    if arguments.families:
        FAMILIES.update(importlib.import_module(arguments.families).FAMILIES)
    job = Job(arguments.data, arguments.labeled, arguments.split, arguments.seed)
    target = arguments.results / f"{job.name}-{arguments.arm}.json"
    if target.exists():
        return
    sources = {"hippocampus": arguments.hippocampus} if arguments.hippocampus else {}
    minutes, device = arguments.minutes, arguments.device
    record = train(job, arguments.arm, arguments.set, sources, arguments.work, minutes, device)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(record | {"commit": arguments.commit}, indent=1) + "\n")
    scores = {key: record[key] for key in ("supervised", "unlabeled", "shipped")} | record["averages"]
    print(job.name, arguments.arm, {key: round(fmean(values.values()), 2) for key, values in scores.items()})


if __name__ == "__main__":
    main()
