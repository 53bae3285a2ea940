"""Whole plans: for any scans, a plan loads, builds and has a reason for every value."""

import re
from dataclasses import replace
from math import prod

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_fakes import CPU, CT, GPU, any_facts, case, facts, steps_of, usual

from graftseg.core.errors import Code
from graftseg.inference.model import build_method
from graftseg.methods import METHODS
from graftseg.networks import stride_of
from graftseg.planning.cost import GIB, Target
from graftseg.planning.facts import Facts
from graftseg.planning.plan_file import default_reason
from graftseg.planning.plans import Plan, choose
from graftseg.recipes.baseline import baseline_of
from graftseg.recipes.recipe import load_recipe, parse_recipe
from user_errors import user_error

META = torch.device("meta")


@given(known=any_facts(), target=st.sampled_from([CPU, GPU]), minutes=st.sampled_from([None, 0.5, 20.0, 6000.0]))
@settings(deadline=None, max_examples=30)
@pytest.mark.slow
def test_every_plan_loads_and_builds(
    tmp_path_factory: pytest.TempPathFactory, known: Facts, target: Target, minutes: float | None
) -> None:
    plan = choose(known, target, minutes=minutes)
    path = tmp_path_factory.mktemp("plans") / "plan.yaml"
    path.write_text(plan.text)
    recipe = load_recipe(path)
    assert recipe == plan.recipe
    for stage in recipe.stages:
        with META:
            build_method(recipe, stage, known.channels, len(known.classes), META)
    stride, patch = stride_of(recipe.network), recipe.batches.patch
    assert all(n % stride == 0 and n >= 2 * stride for n in patch)
    assert recipe.batches.labeled % 2 == 0
    uses_unlabeled = any(METHODS[stage.method].uses_unlabeled for stage in recipe.stages)
    steps = sum(stage.steps for stage in recipe.stages)
    assert uses_unlabeled == recipe.baseline and (known.unlabeled_count > 0 or not uses_unlabeled)
    assert not uses_unlabeled or steps >= 400
    assert recipe.batches.unlabeled == (recipe.batches.labeled if uses_unlabeled else 0)
    assert ("supervised recipe" in plan.text) == (not uses_unlabeled)
    assert ("one labeled scan" in " ".join(plan.head)) == (known.labeled_count == 1)
    assert recipe.folds is None or 2 <= recipe.folds <= known.labeled_count
    if uses_unlabeled:
        baseline_of(recipe)


@given(known=any_facts(), target=st.sampled_from([CPU, GPU]))
@settings(deadline=None, max_examples=5)
def test_every_value_has_a_reason_on_its_line_or_above(known: Facts, target: Target) -> None:
    text = choose(known, target).text
    assert max(len(line) for line in text.splitlines()) <= 120
    above = False
    for line in text.splitlines():
        value, _, reason = line.partition("  # ")
        is_comment = line.lstrip().startswith("#")
        if not is_comment and not value.rstrip().endswith(":"):
            assert reason or above, line
            assert reason not in ("", "the default") or above, line
        above = is_comment


@pytest.mark.parametrize("target", [CPU, GPU])
def test_plan_contains_all_settings(target: Target) -> None:
    """Settings implied by `fast` are not written."""
    plan = choose(facts(*usual()), target)
    tree, whole = yaml.safe_load(plan.text), plan.recipe.model_dump(mode="json", exclude={"published"})
    assert parse_recipe(tree, "plan") == plan.recipe
    assert (whole["loop"].pop("precision"), whole["stages"][1]["settings"].pop("joint")) == ("bf16", True)
    assert tree == whole
    exact = parse_recipe(tree | {"fast": False}, "plan")
    assert exact.loop.precision == "float32" and exact.stages[1].settings["joint"] is False
    assert not [line for line in plan.text.splitlines() if line.endswith("# the default")]


def test_settings_without_a_reason_have_a_description() -> None:
    assert default_reason("loop.log_every") == "steps between two writes to the log"
    assert default_reason("network.width").startswith("channels at full resolution")
    assert default_reason("stages.1.settings.novel") == "the default"


def of(plan: Plan, name: str) -> tuple[object, str]:
    choice = plan.choices[name]
    return choice.value, choice.reason


def test_a_plan_for_volumes_on_a_gpu() -> None:
    """The published batch and network; a patch that covers the scan."""
    plan = choose(facts(*usual((112, 100, 80))), GPU)
    recipe = plan.recipe
    assert (recipe.network.name, recipe.network.width, recipe.network.levels) == ("vnet-bn", 16, 5)
    assert (recipe.batches.patch, recipe.batches.labeled, recipe.batches.unlabeled) == ((112, 112, 80), 4, 4)
    assert [stage.method for stage in recipe.stages] == ["supervised", "graft"]
    assert [stage.check_teacher for stage in recipe.stages] == [False, True]
    assert recipe.network.leaky and not recipe.network.channels_last
    assert recipe.batches.warp is not None and recipe.batches.intensity is not None
    assert recipe.stages[0].steps + recipe.stages[1].steps <= 17_000
    assert [stage.optimizer.schedule.name for stage in recipe.stages] == ["constant", "poly"]
    assert [stage.carry_optimizer for stage in recipe.stages] == [False, True]
    assert recipe.batches.foreground == 0
    assert "a complete typical scan" in of(plan, "batches.patch")[1]


def test_a_plan_for_large_ct_on_a_cpu() -> None:
    scans = [case((512, 512, 400), (0.8, 0.8, 1.0), percentiles=CT, number=number) for number in range(3)]
    plan = choose(facts(*scans, *usual((512, 512, 400), (0.8, 0.8, 1.0), 0, 5)), CPU)
    recipe = plan.recipe
    assert prod(recipe.batches.patch) <= 64**3 and min(recipe.batches.patch) >= 48
    assert recipe.batches.foreground == 0.33
    assert recipe.network.width == 8
    assert recipe.inference.overlap == 0.25


def test_thin_volumes_keep_their_thickness() -> None:
    plan = choose(facts(*usual((200, 200, 24))), GPU)
    assert plan.recipe.batches.patch == (200, 200, 24)
    assert plan.recipe.network.levels == 4


def test_slices_for_long_voxels() -> None:
    plan = choose(facts(*usual((256, 240, 20), (1.0, 1.0, 6.0))), GPU)
    recipe = plan.recipe
    assert (recipe.data.dimensions, recipe.network.name, recipe.batches.patch) == (2, "unet-2d", (256, 240))
    assert recipe.batches.labeled == 12
    assert recipe.batches.foreground == 0.33
    assert (recipe.stages[1].settings["dice"], recipe.stages[1].settings["ema_scope"]) == ("over-batch", "state")


def test_more_memory_more_patch() -> None:
    known = facts(*usual((300, 300, 300)), classes=5)
    voxels = [
        prod(choose(known, Target("cuda", memory * GIB, "", False)).recipe.batches.patch) for memory in (6, 16, 80)
    ]
    assert voxels == sorted(voxels) and voxels[0] < voxels[-1] <= 128**3


@pytest.mark.parametrize("memory", [2, 4, 8, 16, 24, 80])
def test_the_estimate_keeps_within_the_memory(memory: int) -> None:
    plan = choose(facts(*usual((400, 400, 300), labeled=2, unlabeled=2)), Target("cuda", memory * GIB, "", False))
    device = next(line for line in plan.head if line.startswith("Device"))
    needed = float(device.split("takes about ")[1].split()[0])
    assert needed <= 0.85 * memory


def test_scans_larger_than_the_memory_are_read_from_disk() -> None:
    known = facts(*usual((512, 512, 300), unlabeled=200))
    assert "read from files" in " ".join(choose(known, GPU).head)
    assert "in the device's memory" in " ".join(choose(facts(*usual()), GPU).head)


def test_a_measured_step_decides_the_number_of_steps() -> None:
    """A step takes one second, so an hour has 3600 steps, including those of the baseline and the folds."""
    slow = choose(facts(*usual(), test_count=9), CPU, timer=steps_of(1.0))
    fast = choose(facts(*usual(), test_count=9), CPU, timer=steps_of(0.1))
    total = [sum(stage.steps for stage in plan.recipe.stages) for plan in (slow, fast)]
    # a step of the first stage and of the baseline, which starts after the first stage, costs 3 / 4 of a second
    assert total == [3000, 17_000] and slow.recipe.stages[0].steps == 1800
    # eight unlabeled scans of one window are predicted between the stages, six of them four times during self-training,
    # and eight by both networks at the end; a forward pass of four images takes 0.25 s
    assert slow.minutes == pytest.approx((1800 * 0.75 + 1200 + 1200 * 0.75 + (8 + 4 * 6 + 2 * 8) * 0.25 / 4) / 60)
    assert "measured here" in " ".join(slow.head)
    assert "from a table" in " ".join(choose(facts(*usual()), CPU).head)


@pytest.mark.parametrize("minutes", [5.0, 60.0, 600.0])
def test_a_plan_takes_the_time_that_it_is_given(minutes: float) -> None:
    plan = choose(facts(*usual()), CPU, minutes=minutes, timer=steps_of(0.25))
    assert 0.8 * minutes <= plan.minutes <= minutes
    assert f"requested {minutes:g} minutes" in plan.text


def test_warning_about_too_little_time() -> None:
    plan = choose(facts(*usual()), CPU, minutes=1, timer=steps_of(5.0))
    assert [(stage.method, stage.steps) for stage in plan.recipe.stages] == [("supervised", 400)]
    assert any("too short to learn from the unlabeled scans" in line for line in plan.head)
    assert "longer than the requested minute" in plan.text and plan.minutes > 1
    assert any(line.startswith("Warning: 400 steps") for line in plan.head)


def recommended_minutes(plan: Plan, begin: str) -> int:
    """Return the minutes that a warning recommends."""
    (line,) = (line for line in plan.head if line.startswith(begin))
    return int(re.findall(r"--minutes (\d+)", line)[0])


def test_recommended_minutes() -> None:
    """A step of one second, of the first stage and of the baseline 3 / 4; the recommendations add a tenth.

    The predictions of eight scans take 3 s in a run, (8 + 4 * 6 + 2 * 8) / 16, and 2 s in a fold.
    """
    plan = choose(facts(*usual(labeled=4)), CPU, minutes=1, timer=steps_of(1.0))
    # 1.1 * 400 * 3 / 4 / 60 = 5.5
    assert recommended_minutes(plan, "Warning: this is more than") == 6
    # 1.1 * (240 * 3 / 4 + 160 * 7 / 4 + 3) / 60 = 8.5
    assert recommended_minutes(plan, "Warning: the time is too short") == 9
    # 1.1 * (900 * 3 / 4 + 600 * 7 / 4 + 3) / 60 = 31.7
    assert recommended_minutes(plan, "Warning: 400 steps") == 32
    # 4 * 1.1 * (1200 * 3 / 4 + 800 * 7 / 4 + 2) / 60 = 168.8
    assert recommended_minutes(plan, "Warning: this run cannot") == 169


@given(
    seconds=st.floats(0.001, 20),
    ratio=st.floats(1, 6),
    labeled=st.integers(1, 12),
    unlabeled=st.sampled_from([0, 2, 8, 300]),
    size=st.sampled_from([64, 400]),
    minutes=st.floats(0.01, 100),
)
@settings(deadline=None, max_examples=30)
def test_a_plan_fits_and_so_do_the_recommended_minutes(
    seconds: float, ratio: float, labeled: int, unlabeled: int, size: int, minutes: float
) -> None:
    """Predictions of 300 large scans take longer than training."""
    known = facts(*usual((size, size, 48), labeled=labeled, unlabeled=unlabeled))

    def planned(minutes: float) -> Plan:
        return choose(known, CPU, minutes=minutes, timer=steps_of(seconds, 1 / ratio))

    plan = planned(minutes)
    more = [line for line in plan.head if line.startswith("Warning: this is more than")]
    assert (plan.minutes > minutes) == bool(more)
    assert not more or (not plan.recipe.baseline and sum(stage.steps for stage in plan.recipe.stages) == 400)
    for line in [line for line in plan.head if "--minutes " in line and line.startswith("Warning")]:
        recommended = int(re.findall(r"--minutes (\d+)", line)[0])
        longer = planned(recommended)
        assert longer.minutes <= recommended
        assert not [other for other in longer.head if other[:30] == line[:30]]
        if "to use them" in line:
            assert longer.recipe.baseline and longer.recipe.stages[-1].method == "graft"
        if "cannot be scored" in line:
            assert longer.recipe.folds == min(labeled, 5)


def test_predictions_of_unlabeled_scans_are_part_of_the_time() -> None:
    """Every step takes 0.09 s. A prediction takes a third of a quarter of it, because a step has four images."""
    known = facts(*usual(unlabeled=300), test_count=9)
    plan = choose(known, CPU, minutes=1, timer=steps_of(0.09, 1.0))
    # 300 + 4 * 6 + 2 * 30 predictions; the baseline repeats the second stage, so 460 steps would take 62 s
    assert [stage.steps for stage in plan.recipe.stages] == [270, 180]
    assert plan.minutes == pytest.approx(((450 + 180) * 0.09 + 384 * 0.0075) / 60)
    (time,) = (line for line in plan.head if line.startswith("Time: "))
    assert time.startswith("Time: about 59.6 s in total (up to 1 min 2 s if the check of the teacher is repeated): ")
    assert "40.5 s for 450 steps, 2.9 s to predict the unlabeled scans and 16.2 s for the supervised baseline." in time


@pytest.mark.parametrize(("self_training", "supervised"), [(6.0, 1.0), (1.0, 2.0), (1.0, 1.0)])
def test_only_a_plausible_ratio_of_step_times_is_used(self_training: float, supervised: float) -> None:
    """A step of Graft without pasting is expected to take 7 / 3 supervised steps, within a factor of 2.5."""
    plan = choose(facts(*usual()), CPU, timer=steps_of(self_training, supervised / self_training))
    first, second = (stage.steps for stage in plan.recipe.stages)
    used = min(self_training, supervised * 2.5 * 7 / 3), min(supervised, self_training * 2.5 * 3 / 7)
    # 48 predictions of 1 / 12 supervised step each
    expected = first * used[1] + second * sum(used) + 48 * used[1] / 12
    assert plan.minutes == pytest.approx(expected / 60)


@pytest.mark.parametrize(
    ("busy", "threads", "remedy"),
    [
        (0.3, 2, None),
        (1.5, 1, "Plan again when they have finished."),
        (
            1.9,
            2,
            "finished, or plan and train with OMP_NUM_THREADS=1, because threads on shared cores wait for one another.",
        ),
        (
            2.5,
            8,
            "finished, or plan and train with OMP_NUM_THREADS=5, because threads on shared cores wait for one another.",
        ),
    ],
)
def test_warning_about_other_programs(
    monkeypatch: pytest.MonkeyPatch, busy: float, threads: int, remedy: str | None
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    head = choose(facts(*usual()), CPU, timer=steps_of(0.1), busy=busy).head
    lines = [line for line in head if line.startswith("Warning: during the measurement")]
    assert len(lines) == (remedy is not None) and all(line.endswith(str(remedy)) for line in lines)


def test_predictions_that_take_most_of_the_time_are_named() -> None:
    """A step takes 1 ms. All predictions of 400 x 400 x 400 voxels take 16.4 s."""
    known = facts(*usual((400, 400, 400), unlabeled=300), test_count=9)
    plans = [choose(known, CPU, minutes=minutes, timer=steps_of(0.001, 1.0)) for minutes in (0.1, 0.5, 1)]
    assert [plan.recipe.baseline for plan in plans] == [False, True, True]
    assert "400 steps and their baseline take 0.6 s, and the predictions of the unlabeled scans 16.4 s" in " ".join(
        plans[0].head
    )
    notes = [any(line.startswith("Note: the predictions") for line in plan.head) for plan in plans]
    assert notes == [False, True, False]
    assert plans[0].recipe.stages[0].steps == 6000
    reason = of(plans[0], "stages.0.method")[1]
    assert reason == "with the unlabeled scans, fewer than 400 steps would fit into the requested 0.1 minutes"


@pytest.mark.parametrize("minutes", [0.0, -3.0, float("nan"), float("inf"), 1e300])
def test_invalid_minutes_are_rejected(minutes: float) -> None:
    with user_error(Code.OPTION_INVALID, "--minutes"):
        choose(facts(*usual()), CPU, minutes=minutes)


@pytest.mark.parametrize(
    ("labeled", "has_test", "seconds", "folds", "reason"),
    [
        (4, False, 0.01, 4, "not trained on it"),
        (30, False, 0.01, 5, "not trained on it"),
        (30, True, 0.01, None, "there is a test set"),
        (1, False, 0.01, None, "cannot be divided"),
        (30, False, 1.0, None, "--folds 5 forces folds"),
    ],
)
def test_folds_only_without_a_test_set(
    labeled: int, has_test: bool, seconds: float, folds: int | None, reason: str
) -> None:
    plan = choose(facts(*usual(labeled=labeled), test_count=9 * has_test), CPU, timer=steps_of(seconds))
    assert plan.recipe.folds == folds
    assert reason in of(plan, "folds")[1]


@pytest.mark.parametrize(
    ("labeled", "unlabeled", "tested", "seconds", "begin"),
    [
        (4, 8, 0, 1.0, "Warning: this run cannot be scored"),
        (4, 8, 0, 0.01, None),
        (1, 8, 0, 1.0, None),
        (4, 8, 1, 1.0, "Note: 1 test scan with labels can be scored."),
        (4, 8, 5, 1.0, "Note: 5 test scans with labels can be scored."),
        (4, 8, 6, 1.0, None),
        (4, 0, 5, 1.0, None),
    ],
)
def test_warning_about_missing_scores(
    labeled: int, unlabeled: int, tested: int, seconds: float, begin: str | None
) -> None:
    known = facts(*usual(labeled=labeled, unlabeled=unlabeled), test_count=tested)
    head = choose(known, CPU, timer=steps_of(seconds)).head
    warnings = [line for line in head if line.startswith(("Warning: this run cannot", "Note: "))]
    assert len(warnings) == (begin is not None) and all(line.startswith(str(begin)) for line in warnings)


@pytest.mark.parametrize(
    ("labeled", "folds", "minutes"),
    [
        (2, "--folds 2, which takes about 1 h 55 min", 85),
        (3, "--folds 3 (any number from 2 to 3), which takes about 2 h 52 min", 127),
        (9, "--folds 5 (any number from 2 to 5), which takes about 4 h 47 min", 212),
    ],
)
def test_warning_recommends_folds(labeled: int, folds: str, minutes: int) -> None:
    """A step of one second: 3000 steps and their baseline take (1800 * 0.75 + 1200 * 1.75) / 60 = 57.5 minutes."""
    plan = choose(facts(*usual(labeled=labeled)), CPU, timer=steps_of(1.0))
    (line,) = (line for line in plan.head if line.startswith("Warning: this run cannot be scored"))
    assert f"train this plan with {folds}; or plan with --minutes {minutes} or more" in line
    assert line.endswith("or put test scans into imagesTs and their labels into labelsTs.")


def test_separate_folders_are_named_by_their_options() -> None:
    plan = choose(replace(facts(*usual(unlabeled=0)), has_layout=False), CPU, timer=steps_of(1.5))
    head = " ".join(plan.head)
    assert "pass test scans with --test-images and their labels with --test-labels." in head
    assert "Pass a folder of scans with --unlabeled and plan again" in head and "imagesUn" not in head


def test_one_unlabeled_scan_is_not_used() -> None:
    plan = choose(facts(*usual(unlabeled=1)), CPU, timer=steps_of(0.1))
    assert [stage.method for stage in plan.recipe.stages] == ["supervised"] and not plan.recipe.baseline
    assert of(plan, "stages.0.method")[1] == "there are too few unlabeled scans"
    assert any("only one unlabeled scan" in line for line in plan.head)


@pytest.mark.parametrize(("target", "longest"), [(CPU, 19_000), (GPU, 4_900)])
def test_short_runs_use_adam_and_the_average_and_do_not_paste(target: Target, longest: int) -> None:
    """A run is long from 20,000 steps on a CPU and from 5,000 steps on a GPU."""
    is_short = {}
    for minutes in (2, 6, 20, 80):
        recipe = choose(replace(facts(*usual()), test_count=5), target, minutes=minutes, timer=steps_of(0.05)).recipe
        (optimizer,) = {stage.optimizer.name for stage in recipe.stages}
        length = optimizer, recipe.average_with_baseline, recipe.stages[1].settings["direction"]
        is_short[sum(stage.steps for stage in recipe.stages)] = length == ("adam", True, "none")
        assert is_short[sum(stage.steps for stage in recipe.stages)] or length == ("sgd", False, "both")
    assert {steps: steps <= longest for steps in is_short} == is_short
    assert set(is_short.values()) == {True, False}


@pytest.mark.parametrize("method", ["fg-cutmix", "mean-teacher", "ua-mt", "mc-net"])
@pytest.mark.parametrize("shape", [(112, 100, 80), (256, 240)])
def test_other_methods_can_be_planned(method: str, shape: tuple[int, ...]) -> None:
    scans = usual(shape, (1.0,) * len(shape))
    recipe = choose(facts(*scans), CPU, method=method, minutes=5, timer=steps_of(0.1)).recipe
    assert [stage.method for stage in recipe.stages] == ["supervised", method]
    ramp, steps = recipe.stages[1].settings.get("ramp"), recipe.stages[1].steps
    assert ramp is None or ramp * 150 == pytest.approx(0.4 * steps, rel=0.05)
    build_method(recipe, recipe.stages[1], 1, 3, torch.device("meta"))
    assert [stage.method for stage in baseline_of(recipe).stages] == ["supervised", "supervised"]


def test_a_method_that_cannot_be_planned() -> None:
    with user_error(Code.OPTION_INVALID, "--method coranet"):
        choose(facts(*usual()), CPU, method="coranet")
