"""What the folds of a recipe say together, alone and beside those of its baseline."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from graftseg.evaluation.figures import DEVIATION, FIGURES, NOTHING, SHARES, Spread, spread, written
from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.statistics import effect_of, paired
from graftseg.evaluation.verdicts import SEVERAL, missed, verdict_between

SHOWN = ("dice", "hd95")
MEAN = "mean"
HELD_OUT = "Held-out labeled cases"


@dataclass(frozen=True)
class CrossValidation:
    """Every labeled case scored once, by a network that never saw it, and the same for the baseline, if there is one.

    ``parts`` are the cases that each fold held out.
    """

    folder: Path
    parts: tuple[tuple[str, ...], ...]
    evaluation: Evaluation
    baseline: Evaluation | None = None

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Head and a line for each class and figure: mean and spread over the cases, and what the baseline has."""
        head = ("figure", "class", "cases", "mean ± spread over cases")
        if self.baseline is None:
            return head, [self._cells(figure, name) for figure in SHOWN for name in self._names]
        lines = []
        for pairs in paired(self.baseline, self.evaluation):
            if pairs.figure in SHOWN:
                effect = effect_of(pairs)
                interval = NOTHING if math.isnan(effect.low) else f"{effect.low:+.2f} to {effect.high:+.2f}"
                other = written(*_values(spread(pairs.first.tolist())))
                beside = (other, _signed(effect.difference), interval, f"{effect.better}/{effect.worse}/{effect.equal}")
                lines.append((*self._cells(pairs.figure, pairs.name), *beside))
        return (*head, "baseline", "difference", "95 % interval", "better/worse/equal"), lines

    def said(self) -> str:
        """What the figures are of, in one sentence."""
        cases = len({row.case for row in self.evaluation.rows})
        beside = "" if self.baseline is None else ", and once by a supervised one"
        scored = f"{cases} labeled cases, each scored once by a network that never saw it{beside}"
        return f"{self.folder}: {scored}; ± is the {DEVIATION}"

    def verdict(self) -> Iterator[str]:
        """What was found, in sentences: classes that are never found and, with a baseline, what was gained."""
        yield from missed(str(self.folder), self.evaluation)
        if self.baseline is not None:
            yield from missed(str(self.folder / "baseline"), self.baseline)
            yield f"{HELD_OUT}: {verdict_between(self.baseline, self.evaluation, SEVERAL)}."

    def to_json(self) -> dict[str, Any]:
        """All figures as plain values, None for what does not exist."""
        told = {
            "cases": len({row.case for row in self.evaluation.rows}),
            "protocol": self.evaluation.protocol,
            "figures": _figures(self.evaluation),
        }
        if self.baseline is None:
            return told
        effects = {
            figure: {pairs.name: _plain(asdict(effect_of(pairs))) for pairs in found}
            for figure in FIGURES
            if (found := [pairs for pairs in paired(self.baseline, self.evaluation) if pairs.figure == figure])
        }
        return told | {"baseline": _figures(self.baseline), "beside_baseline": effects}

    @property
    def _names(self) -> list[str]:
        return _class_names(self.evaluation)

    def _cells(self, figure: str, name: str) -> tuple[str, ...]:
        values = _of_cases(self.evaluation, figure, name)
        unit = "%" if figure in SHARES else "voxel"
        return f"{FIGURES[figure]} {unit}", name, str(len(values)), written(*_values(spread(values)))


def _class_names(evaluation: Evaluation) -> list[str]:
    """Names of the classes by label, and last their mean where there are several."""
    names = [name for _, name in sorted({(row.label, row.name) for row in evaluation.rows})]
    return [*names, MEAN] if len(names) > 1 else names


def _of_cases(evaluation: Evaluation, figure: str, name: str) -> list[float]:
    """A figure of each case that has it, of a class or in the mean over its classes; overlaps in percent."""
    by_case: dict[str, list[float]] = {}
    for row in evaluation.rows:
        value = getattr(row, figure) * (100 if figure in SHARES else 1)
        if name in (row.name, MEAN) and not math.isnan(value):
            by_case.setdefault(row.case, []).append(value)
    return [math.fsum(values) / len(values) for _, values in sorted(by_case.items())]


def _figures(evaluation: Evaluation) -> dict[str, Any]:
    return {
        figure: {
            name: _plain({"cases": len(values), **asdict(spread(values))})
            for name in _class_names(evaluation)
            for values in [_of_cases(evaluation, figure, name)]
        }
        for figure in FIGURES
    }


def _values(one: Spread) -> tuple[float, float]:
    return one.mean, one.std


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in values.items()}


def _signed(value: float) -> str:
    return NOTHING if math.isnan(value) else f"{value:+.2f}"
