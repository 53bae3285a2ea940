"""Train planned recipes on data that no recipe was tuned on, and record the scores.

A job makes the data and calls ``graftseg plan``, ``train`` and ``test``, with nothing set by hand. Recorded jobs are
skipped, so the script can be stopped and started again. ``graftseg table strangers`` prints the result.

The jobs on a CPU are splits of Hippocampus and five families of phantoms. The jobs on a GPU are LA, ACDC and one split
of Hippocampus.
"""

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks_to_nifti import SCANS_PER_LABEL, write_benchmark
from copies import with_weights
from families import FAMILIES, hippocampus_split
from ranking import correlations
from safetensors.torch import load_file

import graftseg
from graftseg.core.devices import choose_device, hardware_name
from graftseg.core.files import write_text
from graftseg.core.run_folder import RunFolder
from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.verdicts import never_found
from graftseg.experiments.test_run import score_run
from graftseg.recipes.recipe import load_recipe

SEEDS = (0, 1)
LABELED: dict[str, dict[str, tuple[int, ...]]] = {
    "cpu": {"hippocampus": (6, 3, 10, 20)},
    "cuda": {"la": (4, 8), "acdc": (3, 7), "hippocampus": (10,)},
}
"""Numbers of labeled scans by device and data set. For ACDC, they are numbers of patients."""
ALL_LABELED = {
    "cpu": {"hippocampus": 66, "small": 36, "thin": 36, "islands": 36, "shift": 36, "slices": 36},
    "cuda": {"la": 80, "acdc": 70},
}
"""Numbers of labeled scans of the upper bounds."""


@dataclass(frozen=True)
class Job:
    """One planned run: a data set, its split or seed, the number of labels and the seed of training.

    With ``all_labeled``, all scans but the test scans are labeled, for the upper bound.
    """

    data: str
    labeled: int
    split: int
    seed: int
    all_labeled: bool = False

    @property
    def name(self) -> str:
        """The name of the record."""
        labeled = "all" if self.all_labeled else self.labeled
        return f"{self.data}-{labeled}-split{self.split}-seed{self.seed}"

    def write(self, sources: Mapping[str, Path], out: Path) -> None:
        """Make the data set."""
        unlabeled = 0 if self.all_labeled else 60
        if self.data in FAMILIES:
            FAMILIES[self.data](out, self.split, all_labeled=self.all_labeled)
        elif self.data == "hippocampus":
            hippocampus_split(sources[self.data], out, split=self.split, labeled=self.labeled, unlabeled=unlabeled)
        else:
            write_benchmark(self.data, sources[self.data], out, self.labeled)


def jobs(device: str) -> Iterator[Job]:
    """Yield all jobs for a device, one of every kind first."""
    labeled = LABELED[device]
    for seed in SEEDS:
        if device == "cpu":
            yield from (Job(family, 6, seed, seed) for family in FAMILIES)
        yield from (Job(name, count, seed, seed) for name in labeled for count in labeled[name])
    yield from (Job(name, count, 0, 0, all_labeled=True) for name, count in ALL_LABELED[device].items())
    if device == "cpu":
        for split in SEEDS:
            yield from (Job(name, count, split, 1 - split) for name in labeled for count in labeled[name])


def run(job: Job, sources: Mapping[str, Path], work: Path, minutes: float, device: str) -> dict[str, Any]:
    """Make the data of a job, plan, train and return the record."""
    folder = work / job.name
    shutil.rmtree(folder, ignore_errors=True)
    job.write(sources, folder / "scans")
    began = time.monotonic()
    plan = graftseg.plan(folder / "scans", folder / "plan.yaml", device=device, minutes=minutes)
    planned = time.monotonic()
    graftseg.train(plan, folder / "scans", folder / "run", overrides=[f"seed={job.seed}"], device=device)
    seconds = {"plan": round(planned - began, 1), "train": round(time.monotonic() - planned, 1)}
    return record_of(job, folder, minutes, device) | {"seconds": seconds}


def record_of(job: Job, folder: Path, minutes: float, device: str) -> dict[str, Any]:
    """Test the trained networks of a job and return the record.

    ``supervised``, ``unlabeled``, ``average`` and ``shipped`` are the scores of the baseline, of the network trained
    with unlabeled scans, of their average (None if the plan has none), and of the network that predicts.
    """
    tested = graftseg.test(folder / "run", device=device)
    made = RunFolder(folder / "run")
    own = tested.scores[made.path]
    baseline = tested.scores.get(made.baseline.path, own)
    shipped, checks = made.shipped(), made.teacher_checks()
    kept = baseline if shipped is not None and shipped.network == "baseline" else own
    self_trained, average = own, None
    if made.weights_file == made.average_file:
        before = with_weights(made, load_file(made.trained_file), folder / "self-trained")
        scored = score_run(before, folder / "scans", lambda path: path, device=choose_device(device))
        self_trained, average = scored.scores[before.path], own
    return {
        "data": job.data,
        "device": device,
        "labeled": job.labeled,
        "all_labeled": job.all_labeled,
        "split": job.split,
        "seed": job.seed,
        "minutes": minutes,
        "steps": [stage.steps for stage in load_recipe(folder / "run" / "recipe.yaml").stages],
        "hardware": hardware_name(choose_device(device)),
        "checkpoint": "last",
        "supervised": dice_of(baseline),
        "unlabeled": dice_of(self_trained),
        "average": None if average is None else dice_of(average),
        "shipped": dice_of(kept),
        "lost": list(never_found(kept).values()),
        "network": None if shipped is None else shipped.sentence,
        "teacher": [{"decision": check.decision, "rejected": len(check.rejected)} for check in checks],
        "ranking": correlations(folder / "run", folder / "scans" / "imagesTs", device),
    }


def dice_of(scores: Evaluation) -> dict[str, float]:
    """Return the mean Dice over classes of every case, in percent."""
    cases = sorted({row.case for row in scores.rows})
    return {case: round(100 * fmean(row.dice for row in scores.rows if row.case == case), 3) for case in cases}


def records_in(file: Path) -> dict[str, Any]:
    """Return the records of a device by the names of their jobs."""
    records: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return records


def add_record(file: Path, name: str, record: Mapping[str, Any]) -> None:
    """Add a record. Other processes may add records to the same file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        write_text(file, json.dumps(dict(sorted({**records_in(file), name: record}.items())), indent=1) + "\n")
    finally:
        os.close(folder)


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, check=True).stdout.strip()


def main() -> None:
    """Run all jobs that are not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hippocampus", type=Path, help="folder with imagesTr and labelsTr of MSD Hippocampus")
    for name in SCANS_PER_LABEL:
        parser.add_argument(f"--{name}", type=Path, help=f"folder of the published files of {name.upper()}")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--work", type=Path, default=Path("runs/strangers"))
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--device", choices=LABELED, default="cpu")
    parser.add_argument("--only", default="", help="run only jobs whose name contains this text")
    parser.add_argument("--commit", help="commit to record, by default the commit of this repository")
    arguments = parser.parse_args()
    sources = {name: path for name in ("hippocampus", *SCANS_PER_LABEL) if (path := getattr(arguments, name))}
    for job in jobs(arguments.device):
        if job.data not in {*FAMILIES, *sources}:
            continue
        target = arguments.results / "strangers" / f"{arguments.device}.json"
        if job.name in records_in(target) or arguments.only not in job.name:
            continue
        record = run(job, sources, arguments.work, arguments.minutes, arguments.device)
        record["commit"] = arguments.commit or _commit()
        add_record(target, job.name, record)
        means = {key: round(fmean(record[key].values()), 2) for key in ("supervised", "unlabeled", "shipped")}
        print(job.name, means, record["teacher"], record["seconds"], flush=True)


if __name__ == "__main__":
    main()
