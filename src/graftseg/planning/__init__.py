"""A data set -> the recipe to train it with, fitted to the scans and to a device, with a reason for every value."""

from graftseg.data.dataset import Dataset
from graftseg.planning.durations import refuse_minutes
from graftseg.planning.facts import Facts, facts_of
from graftseg.planning.plans import Plan, choose
from graftseg.planning.target import Target, target_of
from graftseg.recipes.recipe import Recipe

__all__ = ["Facts", "Plan", "Target", "choose", "facts_of", "make_plan", "target_of"]


def make_plan(dataset: Dataset, *, device: str = "auto", minutes: float | None = None, timed: bool = True) -> Plan:
    """Read the scans that a training may see and plan for a device; one that is there is timed with a few steps.

    How the scans are prepared does not depend on the device.
    """
    refuse_minutes(minutes)
    target, facts = target_of(device), facts_of(dataset)
    if not (timed and target.present):
        return choose(facts, target, minutes=minutes)

    def seconds(recipe: Recipe) -> float:
        from graftseg.core.devices import choose_device
        from graftseg.planning.probe import seconds_per_step

        return seconds_per_step(recipe, facts.channels, len(facts.classes), choose_device(device))

    return choose(facts, target, minutes=minutes, timed=seconds)
