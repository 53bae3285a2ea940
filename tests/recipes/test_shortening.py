"""Shortened trainings: every length is divided, nothing else changes."""

import re
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml
from command_line import CommandLine
from hypothesis import given
from hypothesis import strategies as st

from graftseg import api
from graftseg.core.errors import Code
from graftseg.data.store import Store
from graftseg.experiments.records import read_record
from graftseg.recipes.baseline import baseline_of
from graftseg.recipes.recipe import Recipe, changed, load_recipe, metric_differences, parse_recipe, training_differences
from graftseg.recipes.shortening import RAMP, requested_recipe, shortened
from loops import for_each
from markdown_pages import DOCS, tables
from user_errors import user_error

ROOT = Path(__file__).parents[2]
SHORT = sorted(ROOT.glob("results/*/*/seed-0-short"))
SHIPPED_VARIANTS: dict[str, tuple[list[str], int]] = {
    "": ([], 1),
    "fast": (["fast=true"], 1),
    "short": (["fast=true"], 5),
}
"""Overrides and divisor of the variants that must equal the shipped recipe in everything else."""
BENCHMARK_RECORDS = sorted(path.parent for path in ROOT.glob("results/*-*[0-9]/*/seed-*/record.json"))
SETTINGS = ["acdc-3", "la-4", "pancreas-12"]
FALLING = {"name": "sgd", "schedule": {"name": "step", "every": 400}}
KEPT = {"ramp_every", "refresh_every"}
"""Settings in steps that are not lengths: the unit of a ramp and the lag of a labeler."""


def of(setting: str) -> list[str]:
    return sorted(f"{setting}/{path.stem}" for path in (ROOT / "src/graftseg/recipes" / setting).glob("[!_]*.yaml"))


def adversarial() -> Recipe:
    """A stage with every kind of length, after one without ramp and schedule."""
    second = {
        "method": "dan",
        "steps": 1003,
        "settings": {"ramp": 7},
        "optimizer": FALLING,
        "optimizers": {"discriminator": {"name": "adam", "schedule": {"name": "step", "every": 99}}},
    }
    first = {"method": "bcp-pretrain", "steps": 200, "optimizer": {"name": "sgd", "schedule": {"name": "poly"}}}
    return tiny.tiny_recipe(stages=[first, second], selection={"protocol": "val", "every": 25, "first": 59})


def test_every_length_is_divided_and_nothing_else_is_changed() -> None:
    long, short = adversarial(), shortened(adversarial(), 5)
    expected = [
        "stages.0.steps=40",
        "stages.1.steps=200",
        "stages.1.settings.ramp=1.4",
        "stages.1.optimizer.schedule.every=80",
        "stages.1.optimizers.discriminator.schedule.every=19",
        "selection.every=5",
        "selection.first=11",
    ]
    assert short == changed(long, expected)
    assert training_differences(long, short) == sorted(one.split("=")[0] for one in expected)
    assert shortened(short, 1) is short


def test_ramp_that_rises_rarely_gets_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    requested_recipe("acdc-3/ua-mt", shorter=16)
    requested_recipe("acdc-3/bcp", shorter=100)
    assert caplog.messages == []
    requested_recipe("acdc-3/ua-mt", shorter=20)
    (warning,) = caplog.messages
    assert warning.startswith("recipe acdc-3/ua-mt, --shorter 20: ") and "only 9 times" in warning


def test_nothing_is_scored_more_often_than_every_step() -> None:
    assert shortened(adversarial(), 50).selection.every == 1
    assert shortened(tiny.tiny_recipe(), 4).selection == tiny.tiny_recipe().selection


def test_a_baseline_is_as_short() -> None:
    base = baseline_of(shortened(adversarial(), 5))
    assert [stage.steps for stage in base.stages] == [240]
    assert base.stages[0].optimizer.schedule.model_dump() == {"name": "step", "every": 80, "gamma": 0.1}


@given(
    lengths=st.lists(st.tuples(st.integers(1, 10**6), st.floats(1e-3, 1e4), st.integers(1, 10**6)), min_size=1),
    shorter=st.integers(1, 10**3),
    every=st.none() | st.integers(1, 10**6),
    first=st.integers(0, 10**6),
)
def test_shortened_lengths_are_quotients(
    lengths: list[tuple[int, float, int]], shorter: int, every: int | None, first: int
) -> None:
    stages = [
        {
            "method": "mean-teacher",
            "steps": steps,
            "settings": {"ramp": ramp},
            "optimizer": {"name": "sgd", "schedule": {"name": "step", "every": interval}},
        }
        for steps, ramp, interval in lengths
    ]
    long = tiny.tiny_recipe(stages=stages, selection={"every": every, "first": first})
    if any(min(steps, interval) < shorter for steps, _, interval in lengths):
        least = min(min(steps, interval) for steps, _, interval in lengths)
        with user_error(Code.OPTION_INVALID, f"--shorter {shorter}", f"pass {least} or less"):
            shortened(long, shorter)
        return
    short = shortened(long, shorter)
    found = [(stage.steps, stage.settings["ramp"], schedule_of(stage)["every"]) for stage in short.stages]
    assert found == [(steps // shorter, ramp / shorter, interval // shorter) for steps, ramp, interval in lengths]
    assert short.selection.first == first // shorter
    assert short.selection.every == (None if every is None else max(1, every // shorter))


def schedule_of(stage: Any) -> dict[str, Any]:
    return dict(stage.optimizer.schedule.model_dump())


def by_hand(recipe: Recipe, shorter: int) -> list[str]:
    """The same shorter training as settings, written one by one."""
    sets: list[str] = []
    for index, stage in enumerate(recipe.stages):
        sets.append(f"stages.{index}.steps={stage.steps // shorter}")
        if "ramp" in stage.settings:
            sets.append(f"stages.{index}.settings.ramp={stage.settings['ramp'] / shorter}")
        parts = {"optimizer": stage.optimizer, **{f"optimizers.{key}": one for key, one in stage.optimizers.items()}}
        for part, optimizer in parts.items():
            if optimizer.schedule.name == "step":
                sets.append(f"stages.{index}.{part}.schedule.every={optimizer.schedule.every // shorter}")
    return sets


def test_every_row_is_shortened_as_by_hand() -> None:
    failures = {}
    for name in [name for setting in SETTINGS for name in of(setting)]:
        long = load_recipe(name, ["fast=true"])
        if names := metric_differences(changed(long, by_hand(long, 5)), requested_recipe(name, ["fast=true"], 5)):
            failures[name] = names
    assert not failures


@for_each("folder", BENCHMARK_RECORDS)
def test_records_describe_the_shipped_recipes(folder: Path) -> None:
    """A record without a variant, or of a variant with a fixed meaning, has the settings of the current recipe."""
    record = read_record(folder)
    if record.variant in SHIPPED_VARIANTS:
        overrides, shorter = SHIPPED_VARIANTS[record.variant]
        assert metric_differences(record.settings, requested_recipe(record.recipe, overrides, shorter)) == []


@pytest.mark.parametrize(
    ("tables", "setting", "count"), [(["acdc"], "acdc-3", 11), (["la", "interpolation"], "la-4", 12)]
)
def test_sweeps_find_these_records(cli: CommandLine, tables: list[str], setting: str, count: int) -> None:
    said: set[str] = set()
    for table in tables:
        words = ("sweep", table, "--only", f"{setting}/*", "--results", ROOT / "results", "--device", "cpu")
        told = cli.works(*words, "--dry-run", "--shorter", 5, "--set", "fast=true", "--variant", "short")
        said |= {line for line in told.splitlines() if ": recorded" in line}
    assert len(said) == count
    assert said == {f"{setting}/{path.parent.name}, seed 0, short: recorded" for path in SHORT if setting in path.parts}


def test_methods_have_no_other_settings_that_are_counted_in_steps() -> None:
    pages = sorted((DOCS / "reference/methods").glob("*.md"))
    rows = [row for page in pages for name, table in tables(page).items() if name == "Settings" for row in table]
    assert {key.strip("`") for key, _, meaning in rows if re.search(r"\bsteps\b", meaning)} == {RAMP} | KEPT


def test_what_lags_behind_the_student_is_kept() -> None:
    long, short = (requested_recipe("acdc-3/coranet", shorter=shorter).stages[1] for shorter in (1, 5))
    assert (long.steps, short.steps) == (30000, 6000)
    assert (long.settings["ramp"], short.settings["ramp"]) == (200, 40)
    for key in (*KEPT, "ema_decay"):
        assert long.settings[key] == short.settings[key]


@pytest.mark.parametrize("shorter", [0, -5, 2.5])
def test_lengths_are_divided_by_whole_numbers(shorter: Any) -> None:
    with user_error(Code.OPTION_INVALID, f"--shorter {shorter}"):
        shortened(adversarial(), shorter)


def test_recipes_that_cannot_be_shortened_are_refused(cli: CommandLine, store: Store, tmp_path: Path) -> None:
    recipe, out = tmp_path / "recipe.yaml", tmp_path / "out"
    recipe.write_text(yaml.safe_dump(tiny.recipe_tree()))
    words = ("train", recipe, "--data", store.path, "--out", out, "--device", "cpu")
    for more in ((), ("--seeds", 2)):
        assert "pass 4 or less" in cli.fails(*words, "--shorter", 5, *more, code=Code.OPTION_INVALID)
    for command in (words, ("sweep", "la", "--out", out, "--dry-run")):
        assert "--shorter 0" in cli.fails(*command, "--shorter", 0, code=Code.OPTION_INVALID)
    assert not out.exists()


def test_a_sweep_that_is_shorter_needs_a_variant(cli: CommandLine, tmp_path: Path) -> None:
    words = ("sweep", "components", "--results", tmp_path, "--out", tmp_path / "runs", "--device", "cpu", "--dry-run")
    assert "stages.0.steps" in cli.fails(*words, "--shorter", 5, code=Code.VARIANT_NEEDED)
    said = cli.works(*words, "--shorter", 5, "--variant", "fifth").splitlines()
    assert len(said) == 5 and all(line.endswith(", seed 0, fifth: to be trained") for line in said[:-1])
    code, out, _ = cli(*words, "--shorter", 20000, "--variant", "tiny")
    assert code == 1 and "acdc-3/bcp: failed: stages.0.steps of recipe acdc-3/bcp" in out


@pytest.mark.slow
def test_a_run_is_shorter_with_its_seeds_and_folds(cli: CommandLine, store: Store, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tiny.recipe_tree()))
    words = ("train", recipe, "--data", store.path, "--device", "cpu", "--set", "stages.1.steps=7", "--shorter", 3)
    assert f"{tmp_path / 'one'}: finished after 3 steps" in cli.works(*words, "--out", tmp_path / "one")
    cli.works(*words, "--out", tmp_path / "seeds", "--seeds", 1)
    api.train_folds(recipe, store.path, tmp_path / "folds", folds=2, shorter=4, device="cpu")
    for place, steps in (("one", 3), ("seeds/seed-0", 3), ("folds/fold-1", 2)):
        assert api.info(tmp_path / place)["steps"] == steps
    assert [stage.steps for stage in load_recipe(tmp_path / "one" / "recipe.yaml").stages] == [1, 2]
    assert parse_recipe(tiny.recipe_tree(), "tiny").stages[1].steps == 5
    assert "finished after 3 steps" in cli.works(*words, "--out", tmp_path / "one", "--resume")
