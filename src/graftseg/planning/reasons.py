"""Reasons for the settings that a plan does not fit to the data."""

import re
from typing import Any

from pydantic import BaseModel

from graftseg.recipes.recipe import Recipe

IMPLIED_BY_FAST = "implied by fast"
PAPER = "as in the paper"
FOR_NETWORK = "as published for this kind of network"
ARGMAX = "the most probable class, for any number of classes"
NOT_USED = "not used by this rule"
NOT_SCORED = "not used, because training scores no cases"
DEFAULT_REASONS = {
    "seed": "random seed of weights, batches and masks",
    "data.intensity.low": NOT_USED,
    "data.intensity.high": NOT_USED,
    "batches.augment.degrees": "largest rotation angle",
    "batches.augment.margin": "zero padding of scans that are not larger than the patch; as published",
    "batches.fit": "crop patches without rescaling the scans",
    "batches.unlabeled_crop": "crop unlabeled scans like labeled scans",
    "batches.order": "shuffle in every epoch",
    "batches.labeled_cases": "all of them",
    "batches.validation_cases": "none: all labeled cases are used for training, and no checkpoint is selected",
    "batches.held_out": "none; folds hold out their own cases",
    "settings.beta": "side of the pasted box relative to the patch; the best value in the paper",
    "settings.alpha": f"weight of voxels with pseudo-labels; {PAPER}",
    "settings.mixing": "paste crops of one labeled scan into another",
    "settings.mask.name": f"one box, {PAPER}",
    "settings.loss": FOR_NETWORK,
    "settings.dice": FOR_NETWORK,
    "settings.legacy_background_mask": "the corrected loss",
    "settings.ema_decay": f"the teacher follows the student slowly; {PAPER}",
    "settings.ema_scope": FOR_NETWORK,
    "settings.decision": ARGMAX,
    "settings.connectivity": "voxels that touch at a corner are connected",
    "settings.direction": "paste crops in both directions",
    "settings.joint": IMPLIED_BY_FAST,
    "optimizer.weight_decay": "default for this optimizer",
    "optimizer.momentum": "as published",
    "optimizer.betas": "default of Adam",
    "optimizer.schedule.power": "nearly linear decay",
    "optimizer.clip_gradient": "off, because the losses are bounded",
    "optimizers": "none, because the method trains only the student",
    "carry_optimizer": "every stage has its own schedule",
    "loop.precision": IMPLIED_BY_FAST,
    "loop.compiled": "where it pays off",
    "loop.captured": "where it pays off",
    "loop.log_every": "steps between two writes to the log",
    "loop.checkpoint_every": "steps between checkpoints; an interrupted run resumes from the last checkpoint",
    "loop.checkpoint_seconds": "seconds between checkpoints, at most",
    "loop.snapshots": "pictures of each stage for the report",
    "loop.tensorboard": "if it is installed",
    "inference.window": "the center of a window has the largest weight",
    "inference.stride": "determined by overlap",
    "inference.decision": ARGMAX,
    "inference.flips": "off; `predict --tta` also averages over flips, which takes several times as long",
    "selection.protocol": "report the last network, without selection on reported scans",
    "selection.cases": "not used by this protocol",
    "selection.every": "no scoring during training",
    "selection.first": NOT_SCORED,
    "selection.stride": NOT_SCORED,
    "selection.oracle": "never score test scans during training",
}


def default_reason(name: str) -> str:
    """Return the reason for a setting by its dotted name, or else the description of the setting."""
    setting = re.sub(r"^stages\.\d+\.", "", name)
    return DEFAULT_REASONS.get(setting) or _description(name.split(".")) or "the default"


def _description(parts: list[str]) -> str:
    """Return the description of a setting in its model."""
    model: Any = Recipe
    for part in parts:
        field = model.model_fields.get(part) if isinstance(model, type) and issubclass(model, BaseModel) else None
        if field is None:
            return ""
        model, description = field.annotation, field.description or ""
    return description.rstrip(".")
