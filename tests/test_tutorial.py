"""The figures of the tutorial equal those of its recorded runs."""

import re
from pathlib import Path
from statistics import fmean, stdev

from graftseg import api
from graftseg.evaluation.table_metrics import mean_metrics
from graftseg.evaluation.verdicts import verdict
from graftseg.experiments.records import read_record

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results" / "hippocampus"
PAGE = (ROOT / "docs" / "tutorials" / "own-scans.md").read_text()
KINDS = ("planned-supervised/seed-{}", "planned/seed-{}", "planned-supervised/seed-{}-all-labels")
SEEDS = (0, 1, 2)


def dice(kind: str, seed: int) -> float:
    return mean_metrics(read_record(RECORDS / kind.format(seed)).evaluation)["dice"]


def test_the_table_of_seeds() -> None:
    for seed in SEEDS:
        assert f"| {seed} | {' | '.join(f'{dice(kind, seed):.2f}' for kind in KINDS)} |" in PAGE
    columns = [[dice(kind, seed) for seed in SEEDS] for kind in KINDS]
    means = " | ".join(f"{fmean(column):.2f} ± {stdev(column):.2f}" for column in columns)
    assert f"| mean ± standard deviation | {means} |" in PAGE


def test_the_table_of_the_gpu() -> None:
    for seed in SEEDS:
        row = [dice(kind.replace("seed-{}", "seed-{}-gpu"), seed) for kind in KINDS]
        assert f"| {seed} | {' | '.join(f'{cell:.2f}' for cell in row)} | " in PAGE


def test_the_plan_of_the_gpu() -> None:
    assert f"mean Dice {dice('planned/seed-{}-gpu-plan', 0):.2f} % with the unlabeled scans" in PAGE


def test_the_printed_scores() -> None:
    for kind in KINDS[:2]:
        summary = read_record(RECORDS / kind.format(0)).evaluation.summary()
        for one in summary.classes:
            cells = [100 * one.metrics[name].mean for name in ("dice", "jaccard")]
            cells += [one.metrics[name].mean for name in ("hd95", "asd", "volume_error_ml", "volume_error_percent")]
            row = r"\s+".join([one.name, *(re.escape(f"{cell:.2f}") for cell in cells)])
            assert re.search(row, PAGE), row


def test_the_verdict() -> None:
    (comparison,) = api.compare(*(RECORDS / kind.format(0) for kind in KINDS[:2]))
    effects = [effect for pairs, effect in comparison.effects if pairs.metric == "dice"]
    assert verdict(effects[-1]) in PAGE
