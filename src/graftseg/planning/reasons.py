"""Why settings that a plan does not fit to the data are what they are."""

import re
from typing import Any

from pydantic import BaseModel

from graftseg.recipes.recipe import Recipe

IMPLIED_BY_FAST = "what fast means"
DEFAULT_REASONS = {
    "name": "what the report calls it",
    "about": "one line for people",
    "fast": "bf16 where the device has it, and both mixtures in one pass: a good deal faster, equally good in trials",
    "seed": "of weights, batches and masks; another one makes another network of the same kind",
    "data.intensity.low": "not read by this rule",
    "data.intensity.high": "not read by this rule",
    "batches.augment.rotate_flip": "no mirroring, which would swap left and right; 1 suits organs without a side",
    "batches.augment.rotate": "half of the patches are turned a little",
    "batches.augment.degrees": "at most so far",
    "batches.augment.margin": "zeros around scans that are no larger than the patch; as published",
    "batches.fit": "patches keep the scale of the scans",
    "batches.unlabeled_crop": "unlabeled scans are seen everywhere, like labeled ones",
    "batches.order": "anew in every epoch",
    "batches.labeled_cases": "all of them",
    "batches.validation_cases": "none: with few labels every one is trained on, and nothing is selected",
    "batches.held_out": "none; folds hold out theirs by themselves",
    "settings.beta": "side of the pasted box as a share of the patch; the paper's best",
    "settings.alpha": "weight of what a pseudo-label supervises; the paper's",
    "settings.mixing": "crops of one labeled scan are pasted onto another",
    "settings.mask.name": "one box, the paper's mask",
    "settings.loss": "as published for this kind of network",
    "settings.dice": "as published for this kind of network",
    "settings.legacy_background_mask": "the corrected loss",
    "settings.ema_decay": "the teacher follows the student slowly; the paper's",
    "settings.ema_scope": "as published for this kind of network",
    "settings.decision": "the most probable class, for any number of classes",
    "settings.connectivity": "voxels that touch at a corner belong together",
    "settings.direction": "crops are pasted both ways",
    "settings.joint": IMPLIED_BY_FAST,
    "optimizer.weight_decay": "the usual one of this optimiser here",
    "optimizer.momentum": "as published",
    "optimizer.betas": "Adam's own",
    "optimizer.schedule.power": "nearly a straight line",
    "optimizer.clip_gradient": "losses are bounded, so gradients are left alone",
    "optimizers": "the method moves the student alone",
    "carry_optimizer": "every stage has a schedule of its own",
    "loop.precision": IMPLIED_BY_FAST,
    "loop.compiled": "where it pays off",
    "loop.captured": "where it pays off",
    "loop.log_every": "steps between two writings of the log",
    "loop.checkpoint_every": "steps; a run that is cut resumes from the last",
    "loop.checkpoint_seconds": "and at most so many seconds",
    "loop.snapshots": "pictures of each stage for the report",
    "loop.tensorboard": "if it is installed",
    "inference.window": "the middle of a window counts most",
    "inference.stride": "by overlap",
    "inference.decision": "the most probable class, for any number of classes",
    "inference.flips": "one look at each window; `predict --tta` takes the flips too, at several times the work",
    "selection.protocol": "the last network is reported; nothing is selected on scans that are reported",
    "selection.cases": "not read under this protocol",
    "selection.every": "nothing is scored on the way",
    "selection.first": "not read without scoring",
    "selection.stride": "not read without scoring",
    "selection.oracle": "test scans stay closed while training",
}


def default_reason(name: str) -> str:
    """The reason for a setting by its dotted name; for one that has none here, what the setting is."""
    own = re.sub(r"^stages\.\d+\.", "", name)
    return DEFAULT_REASONS.get(own) or _description(name.split(".")) or "the default"


def _description(parts: list[str]) -> str:
    """What a setting says about itself."""
    model: Any = Recipe
    for part in parts:
        field = model.model_fields.get(part) if isinstance(model, type) and issubclass(model, BaseModel) else None
        if field is None:
            return ""
        model, said = field.annotation, field.description or ""
    return said.rstrip(".")
