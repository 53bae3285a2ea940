"""The queue of planned runs: every run can be requested and is not recorded yet."""

from argparse import Namespace
from itertools import pairwise
from typing import Any

import yaml

from graftseg.experiments.records import is_record, record_path
from graftseg.recipes.recipe import metric_differences
from graftseg.recipes.shortening import requested_recipe
from loops import for_each
from markdown_pages import ROOT, load

script = load(ROOT / "benchmarks" / "run_queue.py")
QUEUE = yaml.safe_load(script.QUEUE.read_text())
SCREENING = yaml.safe_load(script.QUEUE.with_name("screening.yaml").read_text())


def options_of(run: dict[str, Any]) -> tuple[list[str], str]:
    """Return the overrides and the variant in the command of a run."""
    words = script.sweep_command(run, QUEUE, Namespace(data=["la=LA", "acdc=ACDC"], out="runs", results="results"))
    pairs = list(pairwise(words))
    (variant,) = [value for key, value in pairs if key == "--variant"]
    return [value for key, value in pairs if key == "--set"], variant


@for_each("run", QUEUE["runs"])
def test_queued_runs_are_valid_and_not_recorded(run: dict[str, Any]) -> None:
    overrides, variant = options_of(run)
    recipe = requested_recipe(run["recipe"], overrides)
    assert recipe.fast and run["seconds"] > 0
    record = ROOT / "results" / record_path(recipe, variant)
    assert not is_record(record), "this run is recorded; remove it from benchmarks/queue.yaml"


@for_each("run", QUEUE["runs"])
def test_the_variant_fast_changes_only_named_settings(run: dict[str, Any]) -> None:
    overrides, variant = options_of(run)
    differences = metric_differences(
        requested_recipe(run["recipe"], ["fast=true"]), requested_recipe(run["recipe"], overrides)
    )
    assert bool(differences) == (variant != "fast")


@for_each("run", SCREENING["runs"])
def test_screening_runs_are_valid(run: dict[str, Any]) -> None:
    overrides, _ = options_of(run)
    assert requested_recipe(run["recipe"], overrides, SCREENING["shorter"]).fast and run["seconds"] > 0


def test_screening_variants_are_distinct() -> None:
    names = [(run["recipe"], run["variant"]) for run in SCREENING["runs"]]
    assert len(set(names)) == len(names)


def test_a_run_has_its_own_settings_and_variant() -> None:
    plain, own = {"recipe": "la-4/bcp"}, {"recipe": "la-4/bcp", "set": ["seed=1"], "variant": "other"}
    assert options_of(plain) == (["fast=true"], "fast")
    assert options_of(own) == (["fast=true", "seed=1"], "other")
