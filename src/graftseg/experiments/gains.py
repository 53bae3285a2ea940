"""What the unlabeled scans gained: recorded runs beside the supervised ones of the same setting, variant and seed."""

from collections.abc import Mapping, Sequence

import numpy as np

from graftseg.evaluation.figures import FIGURES, NOTHING, written
from graftseg.evaluation.statistics import Pairs, bootstrap, paired
from graftseg.experiments.records import Record, refuse_unlike
from graftseg.recipes.recipe import load_recipe, shipped_recipes

BASELINE = "supervised"
FIGURE = "dice"
UNLIKE = "shortened otherwise"
HEAD = (
    "recipe",
    "variant",
    "seeds",
    "steps",
    "steps of the baseline",
    f"{FIGURES[FIGURE]} of the baseline",
    FIGURES[FIGURE],
    "difference",
    "95 % interval",
)


def gains(records: Mapping[str, Sequence[Record]]) -> list[tuple[str, ...]]:
    """A head and a line for each recipe and variant that shares a seed with its baseline; nothing where none does.

    ``records`` are by recipe. Runs whose checkpoints were chosen, or whose empty label maps were scored, by different
    rules are not set side by side; those that were scored on other cases or references are refused. No difference is
    told of two that are not the same part of their recipes' steps: one variant may stand for two lengths.
    """
    lines = []
    for recipe, own in records.items():
        setting, _, method = recipe.partition("/")
        baseline = records.get(f"{setting}/{BASELINE}", ())
        if method == BASELINE:
            continue
        for variant in sorted({record.variant for record in own}):
            couples = _couples(baseline, own, variant)
            for couple in couples:
                refuse_unlike(*couple)
            if couples:
                lines.append(_line(recipe, variant, couples))
    return [HEAD, *lines] if lines else []


def _couples(baseline: Sequence[Record], own: Sequence[Record], variant: str) -> list[tuple[Record, Record]]:
    """Records of the same variant, seed, and rules for checkpoints and empty label maps, the baseline's first."""
    known = {(one.seed, one.reported.chosen): one for one in baseline if one.variant == variant}
    keys = [((one.seed, one.reported.chosen), one) for one in own if one.variant == variant]
    return [(known[key], one) for key, one in keys if key in known]


def _line(recipe: str, variant: str, couples: Sequence[tuple[Record, Record]]) -> tuple[str, ...]:
    of_seeds = [_over_classes(paired(*(one.reported.evaluation for one in couple))) for couple in couples]
    shared = sorted(set.intersection(*(set(pairs.cases) for pairs in of_seeds)))
    first, second = (np.array([[values(pairs)[case] for case in shared] for pairs in of_seeds]) for values in _SIDES)
    differences = (second - first).mean(axis=0)
    low, high = bootstrap(differences) if len(shared) else (np.nan, np.nan)
    alike = all(_same_part(*couple) for couple in couples)
    return (
        recipe,
        variant or NOTHING,
        ", ".join(str(one.seed) for _, one in couples),
        _steps([one for _, one in couples]),
        _steps([one for one, _ in couples]),
        written(float(first.mean()) if shared else np.nan),
        written(float(second.mean()) if shared else np.nan),
        f"{differences.mean():+.2f}" if shared and alike else NOTHING,
        _interval(low, high) if alike else UNLIKE,
    )


def _interval(low: float, high: float) -> str:
    return NOTHING if np.isnan(low) else f"{low:+.2f} to {high:+.2f}"


def _same_part(first: Record, second: Record) -> bool:
    """Whether two records can have been shortened by the same number, as far as their shipped recipes tell."""
    (least, most), (other_least, other_most) = map(_divisors, (first, second))
    return least <= other_most and other_least <= most


def _divisors(record: Record) -> tuple[float, float]:
    """The least and the greatest number that the shipped steps may have been divided by; stages are rounded down."""
    if not record.steps or record.recipe not in shipped_recipes():
        return 0.0, np.inf
    stages = load_recipe(record.recipe).stages
    steps = sum(stage.steps for stage in stages)
    return steps / (record.steps + len(stages)), steps / record.steps


def _over_classes(found: Sequence[Pairs]) -> Pairs:
    """The last pairs of the figure: those over the classes, or of the only class."""
    return [pairs for pairs in found if pairs.figure == FIGURE][-1]


def _first(pairs: Pairs) -> dict[str, float]:
    return dict(zip(pairs.cases, pairs.first.tolist(), strict=True))


def _second(pairs: Pairs) -> dict[str, float]:
    return dict(zip(pairs.cases, pairs.second.tolist(), strict=True))


_SIDES = (_first, _second)


def _steps(records: Sequence[Record]) -> str:
    known = sorted({record.steps for record in records if record.steps is not None})
    return ", ".join(str(steps) for steps in known) or NOTHING
