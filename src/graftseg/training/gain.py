"""The gain of a continued run: Dice before and after, on test or held-out scans; without them, only Dice before."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from graftseg.core.names import same_names
from graftseg.core.phrases import counted
from graftseg.core.progress import track
from graftseg.core.run_folder import RunFolder
from graftseg.core.types import Case
from graftseg.data.dataset import Dataset
from graftseg.data.grid import Grid
from graftseg.data.labels import checked_values
from graftseg.data.prepare import prepare_image
from graftseg.data.store import Store, StoredCase
from graftseg.evaluation.metrics import dice
from graftseg.evaluation.statistics import Effect, Pairs, effect_of
from graftseg.evaluation.verdicts import MAX_P, MIN_CASES, MIN_DIFFERENCE
from graftseg.inference.ensemble import EXACT, Ensemble, predict_maps
from graftseg.inference.label_maps import LABELS_ONLY
from graftseg.recipes.recipe import Recipe

MAX_CASES = 30
"""Maximum number of scored scans, to limit the time. ``graftseg test`` scores all test scans."""
Kind = Literal["test", "held-out", "new"]
WORDS: dict[Kind, str] = {"test": "test", "held-out": "held-out", "new": "newly labeled"}


@dataclass(frozen=True)
class ScoredCase:
    """A case and a function that reads its prepared image, the grid of its label map, and the label map."""

    name: str
    read: Callable[[], tuple[torch.Tensor, Grid, NDArray[Any]]]


@dataclass(frozen=True)
class Gain:
    """Mean Dice in percent, over classes and ``cases`` scans, ``before`` and ``after`` a continued training.

    ``after`` is None if the new network learned from the scans. Then no gain can be stated.
    """

    on: Kind
    cases: int
    before: float
    after: float | None
    sentence: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return dict(vars(self))


def cases_to_score(
    dataset: Dataset | None, store: Store, recipe: Recipe, new_labels: Sequence[str]
) -> tuple[Kind, list[ScoredCase]]:
    """Return the first kind of scored scans that exists: test scans, held-out scans of a fold, or newly labeled scans.

    ``dataset`` contains the test scans. Without it, they are in ``store``.
    """
    if dataset is None:
        test = [_stored(store, case) for case in store.of("test") if case.label is not None]
    else:
        test = [_scan(dataset, case, recipe) for case in dataset.of("test") if case.label is not None]
    if test:
        return "test", test[:MAX_CASES]
    labeled = {case.name: case for case in store.of("labeled")}
    held_out = sorted(same_names(labeled, recipe.batches.held_out))
    names = held_out or sorted(same_names(labeled, new_labels))
    return "held-out" if held_out else "new", [_stored(store, labeled[name]) for name in names[:MAX_CASES]]


def measure_gain(
    before: RunFolder, after: RunFolder, kind: Kind, cases: Sequence[ScoredCase], device: torch.device
) -> Gain:
    """Score two networks on the same cases. Newly labeled cases are scored only with the network ``before``."""
    first = _dice(before, cases, device)
    mean = float(first.mean())
    if kind == "new":
        sentence = (
            f"the earlier network has a mean Dice of {mean:.2f} % on the {counted(len(cases), 'newly labeled scan')}; "
            "the new network learned from these labels, so its gain is unknown without test scans"
        )
        return Gain(kind, len(cases), mean, None, sentence)
    second = _dice(after, cases, device)
    effect = effect_of(Pairs("dice", None, "mean", tuple(case.name for case in cases), first, second))
    return Gain(kind, len(cases), mean, float(second.mean()), gain_sentence(effect, kind))


def gain_sentence(effect: Effect, kind: Kind) -> str:
    """Return one sentence on the mean Dice before (first) and after (second) a continued training."""
    scans = counted(effect.count, f"{WORDS[kind]} scan")
    values = f"{effect.first:.2f} % before and {effect.second:.2f} % after, {effect.difference:+.2f} points"
    found = f"mean Dice on {scans}: {values}"
    if math.isnan(effect.low):
        return f"{found}; a single scan is too few for a conclusion"
    return f"{found} ({effect.statistics}), better in {effect.better} of {effect.count}: {_meaning(effect)}"


def _meaning(effect: Effect) -> str:
    if effect.count < MIN_CASES:
        return f"fewer than {MIN_CASES} scans cannot show a gain"
    if effect.low <= 0 <= effect.high or not effect.p < MAX_P:
        return "these scans do not show a difference"
    if abs(effect.difference) < MIN_DIFFERENCE:
        return "the difference is too small to matter"
    return "the new network is better" if effect.difference > 0 else "the new network is worse, keep the earlier run"


def _dice(run: RunFolder, cases: Sequence[ScoredCase], device: torch.device) -> NDArray[np.float64]:
    """Return the Dice of every case in percent, averaged over the classes."""
    networks = Ensemble.load([run], device, [EXACT], "shipped")
    values = []
    for case in track(cases, f"Scoring {run.path.name}", len(cases)):
        image, grid, expected = case.read()
        labels = predict_maps(networks.predictor, image, grid, LABELS_ONLY, case.name).labels
        scores = [dice(labels == value, expected == value) for value in range(1, len(networks.classes))]
        values.append(100 * sum(scores) / len(scores))
    return np.array(values)


def _stored(store: Store, case: StoredCase) -> ScoredCase:
    """Return a case that is scored on the prepared grid."""

    def read() -> tuple[torch.Tensor, Grid, NDArray[Any]]:
        return torch.from_numpy(store.read_image(case)), Grid.identity(case.shape), store.read_label(case)

    return ScoredCase(case.name, read)


def _scan(dataset: Dataset, case: Case, recipe: Recipe) -> ScoredCase:
    """Return a case that is scored on the grid of its scan."""

    def read() -> tuple[torch.Tensor, Grid, NDArray[Any]]:
        scan = dataset.reader.image(case)
        image, grid = prepare_image(scan, recipe.data, where=case.images[0])
        label = dataset.reader.label(case)
        checked_values(dataset, case, scan.geometry, label)
        return torch.from_numpy(image), grid, label.array

    return ScoredCase(case.name, read)
