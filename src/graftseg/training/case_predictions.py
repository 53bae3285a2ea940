"""Predictions of prepared scans: foreground positions and summaries, without keeping the label maps in memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from graftseg.core.progress import track
from graftseg.data.foreground import Voxels, positions_in
from graftseg.data.grid import Grid
from graftseg.data.store import Store, StoredCase
from graftseg.inference.label_maps import ExtraMaps, clean_labels
from graftseg.inference.predictor import Predictor
from graftseg.methods import Method
from graftseg.networks.layers import eval_mode
from graftseg.recipes.recipe import Recipe
from graftseg.training.plausibility import ScanSummary, summarize
from graftseg.training.step import uncompiled


@dataclass(frozen=True)
class CasePredictions:
    """The foreground positions of each scan after cleaning, and summaries before cleaning by the name of the scan.

    Cleaning removes components, as in the label maps of ``graftseg predict``.
    """

    positions: list[tuple[Voxels, ...]]
    summaries: dict[str, ScanSummary]


def predict_cases(
    recipe: Recipe,
    store: Store,
    method: Method,
    cases: Sequence[StoredCase],
    device: torch.device,
    *,
    located: bool = False,
    summarized: bool = True,
) -> CasePredictions:
    """Predict prepared scans without flips. ``located`` returns positions, and ``summarized`` returns summaries."""
    classes = len(store.classes)
    settings = recipe.inference.uncleaned().model_copy(update={"flips": False})
    predictor = Predictor.for_recipe(recipe, method.segment, classes, device, settings)
    predicted = CasePredictions([], {})
    with eval_mode(method), uncompiled():
        for case in track(cases, "Predicting unlabeled scans", len(cases)):
            extras = ExtraMaps(uncertainty=summarized)
            maps = predictor.prepared_maps(torch.from_numpy(store.read_image(case)), Grid.identity(case.shape), extras)
            if summarized:
                labels, uncertainty = maps.labels.cpu().numpy(), maps.mean_uncertainty
                predicted.summaries[case.name] = summarize(labels, classes, uncertainty, voxel=case.grid.prepared_voxel)
            if located:
                cleaned = clean_labels(maps.labels, recipe.inference, classes, case.grid.prepared_voxel_ml)
                predicted.positions.append(positions_in(cleaned.cpu().numpy()))
    return predicted


def labeled_summaries(store: Store, cases: Sequence[StoredCase]) -> list[ScanSummary]:
    """Summarize the label maps of labeled scans."""
    classes = len(store.classes)
    return [summarize(store.read_label(case), classes, voxel=case.grid.prepared_voxel) for case in cases]
