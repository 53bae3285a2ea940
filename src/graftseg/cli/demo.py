"""The demo: the complete pipeline on synthetic scans."""

import csv
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

from graftseg import api
from graftseg.core.devices import choose_device
from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_path
from graftseg.core.types import Split
from graftseg.data.phantom import write_phantoms
from graftseg.evaluation.scores import Summary
from graftseg.recipes.recipe import load_recipe

COUNTS: dict[Split, int] = {"labeled": 4, "unlabeled": 40, "test": 40}
SHAPES = {2: (64, 64), 3: (32, 32, 32)}
APPEARANCE_SHIFT = 0.8  # the drift of labeled phantoms is at most 0.2 (1 - 0.8), see ``data.phantom``
METHODS = ("supervised", "bcp")


def run_demo(out: Path, *, seed: int, dimensions: int = 2, device: str = "auto", overrides: Iterable[str] = ()) -> str:
    """Run the complete pipeline with both methods, from new scans to the report. Return the results as text."""
    _check_unused(out, device)
    began = monotonic()
    scores = compare(out, seed=seed, dimensions=dimensions, device=device, overrides=overrides)
    page = api.report(out / "bcp", baseline=out / "supervised")
    minutes = (monotonic() - began) / 60
    steps = sum(stage.steps for stage in load_recipe(f"demo-{dimensions}d/bcp", overrides).stages)
    return (
        f"{_table(scores)}\n\n"
        f"Dice in percent on {COUNTS['test']} test scans, last checkpoint, seed {seed}, {minutes:.1f} minutes.\n"
        f"Both methods train {steps} steps on {COUNTS['labeled']} labeled scans, and bcp also on {COUNTS['unlabeled']} "
        f"unlabeled scans.\nReport: {page}"
    )


def compare(out: Path, *, seed: int, dimensions: int, device: str, overrides: Iterable[str] = ()) -> dict[str, Summary]:
    """Train with and without the unlabeled scans, test both runs, and return their scores by method."""
    scans, store, overrides = out / "scans", out / "store", [*overrides, f"seed={seed}"]
    write_phantoms(scans, shape=SHAPES[dimensions], counts=COUNTS, seed=seed, shift=APPEARANCE_SHIFT)
    errors = [finding for finding in api.check(scans) if finding.severity == "error"]
    if errors:
        raise UserError(Code.DATASET_INVALID, scans, f"the check found {errors[0].what}", "report this as a bug")
    api.prepare(scans, store, recipe=f"demo-{dimensions}d/bcp", overrides=overrides)
    scores = {}
    for method in METHODS:
        run = out / method
        api.train(f"demo-{dimensions}d/{method}", store, run, overrides=overrides, device=device)
        predicted = api.predict(run, scans / "imagesTs", device=device)
        scores[method] = api.evaluate(predicted.folder, scans / "labelsTs").summary()
    return scores


def run_seeds(out: Path, seeds: Iterable[int], *, dimensions: int, device: str) -> str:
    """Run the demo with several seeds. Write ``seeds.csv`` and return a table of both methods."""
    _check_unused(out, device)
    rows: list[tuple[int, float, float]] = []
    for seed in seeds:
        folder = out / f"seed-{seed}"
        scores = compare(folder, seed=seed, dimensions=dimensions, device=device).values()
        supervised, bcp = (100 * summary.overall["dice"] for summary in scores)
        rows.append((seed, supervised, bcp))
        with atomic_path(out / "seeds.csv") as partial, partial.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(("seed", "supervised_dice", "bcp_dice"))
            writer.writerows((seed, f"{s:.4f}", f"{b:.4f}") for seed, s, b in rows)
    return seeds_table(rows)


def seeds_table(rows: list[tuple[int, float, float]]) -> str:
    """Return seed, supervised Dice and BCP Dice as a Markdown table with the mean and the number of wins."""
    lines = ["| seed | supervised | BCP | difference |", "|---|---|---|---|"]
    lines += [f"| {seed} | {s:.1f} | {b:.1f} | {b - s:+.1f} |" for seed, s, b in rows]
    s, b = (sum(row[column] for row in rows) / len(rows) for column in (1, 2))
    wins = sum(row[2] > row[1] for row in rows)
    return "\n".join([*lines, f"| mean | {s:.1f} | {b:.1f} | {b - s:+.1f} |", "", f"BCP wins {wins} of {len(rows)}."])


def _check_unused(out: Path, device: str) -> None:
    choose_device(device)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(Code.TARGET_EXISTS, out, "exists and is not an empty folder", "choose another --out")


def _table(scores: dict[str, Summary]) -> str:
    lines = [["", "mean", *(entry.name for entry in scores[METHODS[0]].classes)]]
    for method, summary in scores.items():
        dice = summary.overall["dice"], *(entry.metrics["dice"].mean for entry in summary.classes)
        lines.append([method, *(f"{100 * value:.1f}" for value in dice)])
    return "\n".join("".join(f"{cell:>12}" for cell in line) for line in lines)
