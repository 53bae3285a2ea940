"""Train planned recipes on data that no recipe was tuned on, and record the scores.

A job makes the data and calls ``graftseg plan``, ``train`` and ``test``, with nothing set by hand. Recorded jobs are
skipped, so the script can be stopped and started again. ``graftseg table strangers`` prints the result.
"""

import argparse
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from families import FAMILIES, hippocampus_split

import graftseg
from graftseg.core.devices import choose_device, hardware_name
from graftseg.core.run_folder import RunFolder
from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.verdicts import never_found
from graftseg.recipes.recipe import load_recipe

SEEDS = (0, 1)


@dataclass(frozen=True)
class Job:
    """One planned run: a data set, its split or seed, the number of labels and the seed of training."""

    data: str
    labeled: int
    split: int
    seed: int

    @property
    def name(self) -> str:
        """The name of the record."""
        return f"{self.data}-{self.labeled}-split{self.split}-seed{self.seed}"

    def write(self, source: Path | None, out: Path) -> None:
        """Make the data set."""
        if self.data != "hippocampus":
            FAMILIES[self.data](out, self.split)
        elif source is not None:
            hippocampus_split(source, out, split=self.split, labeled=self.labeled)


def jobs(has_hippocampus: bool) -> Iterator[Job]:
    """Yield all jobs, one of every kind first."""
    for split in SEEDS:
        for family in FAMILIES:
            yield Job(family, 6, split, split)
        for labeled in (6, 3, 10, 20) if has_hippocampus else ():
            yield Job("hippocampus", labeled, split, split)
    for split in SEEDS:
        for labeled in (6, 3, 10, 20) if has_hippocampus else ():
            yield Job("hippocampus", labeled, split, 1 - split)


def run(job: Job, source: Path | None, work: Path, minutes: float, device: str) -> dict[str, object]:
    """Run one job and return its record."""
    folder = work / job.name
    shutil.rmtree(folder, ignore_errors=True)
    job.write(source, folder / "scans")
    began = time.monotonic()
    plan = graftseg.plan(folder / "scans", folder / "plan.yaml", device=device, minutes=minutes)
    graftseg.train(plan, folder / "scans", folder / "run", overrides=[f"seed={job.seed}"], device=device)
    seconds = time.monotonic() - began
    tested = graftseg.test(folder / "run", device=device)
    own, baseline = (tested.scores[folder / "run"], tested.scores[folder / "run" / "baseline"])
    shipped = RunFolder(folder / "run").shipped()
    kept = baseline if shipped is not None and shipped.network == "baseline" else own
    checks = RunFolder(folder / "run").teacher_checks()
    return {
        "data": job.data,
        "labeled": job.labeled,
        "split": job.split,
        "seed": job.seed,
        "minutes": minutes,
        "seconds": round(seconds, 1),
        "steps": [stage.steps for stage in load_recipe(folder / "run" / "recipe.yaml").stages],
        "hardware": hardware_name(choose_device(device)),
        "commit": _commit(),
        "checkpoint": "last",
        "supervised": dice_of(baseline),
        "unlabeled": dice_of(own),
        "shipped": dice_of(kept),
        "lost": list(never_found(kept).values()),
        "network": None if shipped is None else shipped.sentence,
        "teacher": [{"decision": check["decision"], "rejected": len(check["rejected"])} for check in checks],
    }


def dice_of(scores: Evaluation) -> dict[str, float]:
    """Return the mean Dice over classes of every case, in percent."""
    cases = sorted({row.case for row in scores.rows})
    return {case: round(100 * fmean(row.dice for row in scores.rows if row.case == case), 3) for case in cases}


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, check=True).stdout.strip()


def main() -> None:
    """Run all jobs that are not recorded yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hippocampus", type=Path, help="folder with imagesTr and labelsTr of MSD Hippocampus")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--work", type=Path, default=Path("runs/strangers"))
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="run only jobs whose name contains this text")
    arguments = parser.parse_args()
    for job in jobs(arguments.hippocampus is not None):
        target = arguments.results / "strangers" / f"{job.name}.json"
        if target.exists() or arguments.only not in job.name:
            continue
        record = run(job, arguments.hippocampus, arguments.work, arguments.minutes, arguments.device)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(record, indent=1) + "\n")
        means = {key: round(fmean(record[key].values()), 2) for key in ("supervised", "unlabeled", "shipped")}
        print(job.name, means, record["teacher"], f"{record['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
