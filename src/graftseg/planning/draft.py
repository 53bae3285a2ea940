"""A draft of a plan: the resolution, the step shape and the expected times, before the text is written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from graftseg.core.phrases import counted
from graftseg.core.teacher_checks import MIN_SCANS
from graftseg.methods import METHODS
from graftseg.methods.costs import SUPERVISED, step_cost
from graftseg.planning.augmentation import augmentation_choices
from graftseg.planning.choices import Choice, Choices, tree_of
from graftseg.planning.components import component_choices
from graftseg.planning.cost import Target
from graftseg.planning.facts import Facts
from graftseg.planning.frame import Frame
from graftseg.planning.intensities import intensity_choices
from graftseg.planning.length import TrainingLength, choose_length, plausible_times
from graftseg.planning.pace import OVERLAP, Measurement, Pace
from graftseg.planning.patches import StepShape
from graftseg.planning.resolution import choose_resolution, minutes_for
from graftseg.recipes.recipe import PLANNED, Recipe, parse_recipe

StepTimer = Callable[[Sequence[Recipe]], list[float]]
"""Function that measures the seconds per step of the last stage of each recipe."""

IGNORED = "stages.1.settings.ignored_classes"
GRAFT = {
    "alpha": Choice(1.0, "voxels with pseudo-labels finally count as much as labeled voxels"),
    "dice": Choice("over-batch", "the same Dice loss as in the first stage"),
    "ema_scope": Choice("state", "the teacher also averages batch-norm statistics"),
    "labeled_weight": Choice(1.0, "unmixed labeled images, as in the first stage"),
    "rise": Choice(0.3, "fraction of the stage in which the weight of pseudo-labels rises"),
    "confidence": Choice(True, "uncertain pseudo-labels count less"),
    "average": Choice(False, "off, because the learning rate decays to zero"),
}


@dataclass(frozen=True)
class Draft:
    """The resolution and the step shape of a plan, and the expected times."""

    pace: Pace
    minutes: float | None
    frame: Frame
    shape: StepShape

    @classmethod
    def of(cls, pace: Pace, minutes: float | None) -> "Draft":
        """Choose the resolution and the step shape for the expected times."""
        return cls(pace, minutes, *choose_resolution(pace, minutes))

    @property
    def uses_unlabeled(self) -> bool:
        """Return whether there are enough unlabeled scans."""
        return self.pace.facts.unlabeled_count >= MIN_SCANS

    @cached_property
    def length(self) -> TrainingLength:
        """Return the length of the requested method, or of a supervised recipe without unlabeled scans."""
        return self.length_for(self.pace.method if self.uses_unlabeled else None)

    def length_for(self, method: str | None) -> TrainingLength:
        """Return the length of a method, or of a supervised recipe."""
        pace = self.pace
        times = pace.times(self.frame, self.shape, uses_unlabeled=method is not None)
        return choose_length(pace.facts, self.frame, times, self.minutes, pace.method, pace.target.kind)

    def minutes_for(self, steps: int, folds: int | None = None) -> int:
        """Return the ``--minutes`` to recommend for a number of steps of the requested method."""
        return minutes_for(self.pace, steps, folds, uses_unlabeled=self.uses_unlabeled)

    def fixed_choices(self, method: str | None) -> Choices:
        """Choose the settings that do not depend on the time. ``method`` is None for a supervised recipe."""
        facts, frame = self.pace.facts, self.frame
        settings = {} if method is None else METHODS[method].Config.model_fields
        components = component_choices(facts, frame, pseudo_labels="largest_component" in settings)
        general = frame.choices | intensity_choices(facts) | self.shape.choices | _other_choices(self.pace.target)
        ignored = ignored_choices(facts) if "ignored_classes" in settings else {}
        methods = method_choices(frame.dimensions, method) | ignored
        return general | methods | augmentation_choices(facts, frame) | components

    def measured(self, timer: StepTimer) -> "Draft":
        """Return a draft with measured times. If they lead to another resolution, measure again there."""
        draft = replace(self, pace=self._measured_pace(timer))
        better = Draft.of(draft.pace, self.minutes)
        return draft if better.frame == draft.frame else replace(better, pace=better._measured_pace(timer))

    def _measured_pace(self, timer: StepTimer) -> Pace:
        """Measure the seconds per step of the requested method and of supervised training."""
        planned = self.pace.method if self.uses_unlabeled else None
        recipes = {
            name: recipe_of(self.fixed_choices(name) | self.length_for(name).choices) for name in (planned, None)
        }
        seconds = dict(zip(recipes, timer(list(recipes.values())), strict=True))
        self_training, supervised = seconds[planned], seconds[None]
        if planned is not None and self.pace.target.kind == "cpu":
            stage = recipes[planned].stages[-1]
            expected_ratio = step_cost(stage.method, stage.settings, uses_unlabeled=True) / SUPERVISED
            self_training, supervised = plausible_times(self_training, supervised, expected_ratio)
        return replace(self.pace, measurement=Measurement(self.shape, self_training, supervised))


def recipe_of(choices: Choices) -> Recipe:
    """Return the recipe with these settings."""
    return parse_recipe(tree_of(choices), "plan")


def _other_choices(target: Target) -> Choices:
    """Choose the settings that depend only on the kind of device."""
    is_cpu = target.kind == "cpu"
    reason = "a quarter of a window; half a window would take several times as long" if is_cpu else "half of a window"
    fast = "faster: bf16 if the device supports it (loop.precision), and one pass for both mixtures (joint)"
    return {
        "name": Choice(PLANNED, "name in reports"),
        "about": Choice("made by graftseg plan", "description of the recipe"),
        "fast": Choice(True, fast),
        "inference.overlap": Choice(OVERLAP[target.kind], reason),
        "inference.windows_per_forward": Choice(1 if is_cpu else 4, "number of windows or slices in one forward pass"),
    }


def ignored_choices(facts: Facts) -> Choices:
    """Choose the classes whose pseudo-labels are ignored: classes that only some label maps contain.

    In a scan without the class, a teacher often finds a small wrong piece. The student learns it like a complete
    organ, because the Dice loss does not depend on the size of a class. If all classes are occasional, none is ignored,
    because the unlabeled scans would teach only background.
    """
    occasional = facts.occasional_classes
    if not occasional or len(occasional) == sum(pieces.total > 0 for pieces in facts.pieces[1:]):
        return {}
    value, count = occasional[0], facts.labeled_count
    where = f"{facts.classes[value]} is in only {facts.pieces[value].total} of {count} label maps"
    if len(occasional) > 1:
        where += f", and {counted(len(occasional) - 1, 'other class', 'other classes')} in only some of them"
    reason = f"{where}; in scans without such a class, wrong pseudo-labels would grow"
    return {IGNORED: Choice(list(occasional), reason)}


def method_choices(dimensions: int, method: str | None) -> Choices:
    """Choose the settings of the methods of both stages. ``method`` is None for a supervised recipe."""
    choices = {"stages.0.settings.dice": Choice("classes", "Dice over the batch, for all classes and the background")}
    if method is None:
        choices["batches.unlabeled"] = Choice(0, "a supervised recipe uses no unlabeled scans")
    elif method == "graft":
        choices |= {f"stages.1.settings.{name}": choice for name, choice in GRAFT.items()}
    elif method in ("bcp", "fg-cutmix") and dimensions == 2:
        published = "as published for slices"
        choices["stages.1.settings.dice"] = Choice("over-batch", published)
        choices["stages.1.settings.ema_scope"] = Choice("state", published)
    return choices
