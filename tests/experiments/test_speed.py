"""Timing of a training step: phases, marks, memory, phantoms and the printed table."""

import json
import os
import sys
from pathlib import Path
from time import sleep

import pytest
import tiny
import torch
from command_line import CommandLine

from graftseg import api
from graftseg.cli.app import main
from graftseg.core.errors import Code
from graftseg.data.store import Store
from graftseg.experiments.speed import instruments, package_step
from graftseg.experiments.speed.instruments import CLEAR, PHASES, Stopwatch, peak_memory
from graftseg.experiments.speed.measure import Measurement, Plan, Times, measure, measurement_table, whole_epochs
from graftseg.experiments.speed.subject import self_training_stage, subject_of, synthetic_shape, synthetic_store
from graftseg.methods.bcp import Bcp
from graftseg.ops import pseudo_labels
from graftseg.ops.components import largest_components
from graftseg.recipes.recipe import load_recipe
from graftseg.training import loop as engine
from graftseg.training.recorder import Recorder
from graftseg.training.step import Stepper, StepResult
from user_errors import user_error

CPU = torch.device("cpu")
SMALL = Plan(steps=2, rounds=2, workers=0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a clock that the test sets."""
    now = [0.0]
    monkeypatch.setattr(instruments, "perf_counter", lambda: now[0])
    return now


def test_a_moment_counts_for_the_innermost_phase(clock: list[float]) -> None:
    watch = Stopwatch(CPU)
    with watch.phase("student forward"):
        clock[0] += 1
        with watch.phase("teacher"):
            clock[0] += 10
            with watch.phase("components"):
                clock[0] += 100
            clock[0] += 1000
        clock[0] += 10000
    clock[0] += 100000
    with watch.phase("teacher"):
        clock[0] += 5
    expected = {"student forward": 10001.0, "teacher": 1015.0, "components": 100.0}
    assert watch.seconds == dict.fromkeys(PHASES, 0.0) | expected
    assert watch.per_step(2) == {name: seconds / 2 for name, seconds in watch.seconds.items()}
    watch.reset()
    assert not any(watch.seconds.values())


def test_phases_sum_to_the_time_between_them(clock: list[float]) -> None:
    watch = Stopwatch(CPU)

    @watch.phase("components")
    def inner(more: float) -> None:
        clock[0] += more

    for more in (0.5, 2.0):
        with watch.phase("teacher"):
            clock[0] += 1
            inner(more)
    assert sum(watch.seconds.values()) == clock[0] == 4.5
    assert watch.seconds["components"] == 2.5


def test_an_error_closes_its_phase(clock: list[float]) -> None:
    watch = Stopwatch(CPU)
    with pytest.raises(RuntimeError), watch.phase("batch"):
        clock[0] += 1
        raise RuntimeError
    clock[0] += 1
    with watch.phase("update"):
        clock[0] += 4
    assert (watch.seconds["batch"], watch.seconds["update"]) == (1.0, 4.0)


def test_the_median_is_taken_phase_by_phase() -> None:
    phases = [{"a": 0.001, "b": 0.009}, {"a": 0.003, "b": 0.007}, {"a": 0.002, "b": 0.008}]
    assert Times(phases=phases).phases_ms == pytest.approx({"a": 2.0, "b": 8.0})


def test_the_peak_is_that_of_the_block() -> None:
    with peak_memory(CPU) as first:
        held = torch.ones(2**23)
    with peak_memory(CPU) as second:
        sleep(0)
    assert held.sum() == 2**23
    assert first.value >= 4 * 2**23
    if os.access(CLEAR, os.W_OK):
        assert second.value < 4 * 2**23


@pytest.fixture(scope="module")
def result(store: Store) -> Measurement:
    pytest.importorskip("h5py")
    return measure(tiny.tiny_recipe(), store.path, CPU, SMALL)


@pytest.mark.slow
def test_both_implementations_are_measured_in_every_round(result: Measurement) -> None:
    assert result.usual is not None and result.ratio is not None
    for times in (result.graftseg, result.usual):
        assert len(times.steps) == len(times.phases) == len(times.peaks) == 2
        assert all(seconds > 0 for seconds in times.steps)
        assert all(tuple(each) == PHASES and min(each.values()) > 0 for each in times.phases)
    assert result.ratio == result.usual.step_ms / result.graftseg.step_ms
    assert result.facts["steps_a_round"] == 1


def test_replaced_functions_are_restored(store: Store) -> None:
    assert measure(tiny.tiny_recipe(), store.path, CPU, Plan(1, rounds=1, usual=False)).graftseg.steps
    assert vars(engine)["Recorder"] is Recorder
    assert Bcp._pseudo_label.__code__.co_name == "_pseudo_label"
    assert vars(pseudo_labels)["largest_components"] is largest_components


def test_the_whole_step_is_timed_between_ends_of_steps_after_the_warm_up(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    run = Stepper.__call__

    def counted(stepper: Stepper, step: int) -> StepResult:
        ended.append(step + 1)
        return run(stepper, step)

    class Counting(instruments.Mark):
        """A mark on a clock that advances ten seconds per step."""

        def __init__(self, device: torch.device) -> None:
            super().__init__(device)
            self._at = 10.0 * ended[-1]

    monkeypatch.setattr(Stepper, "__call__", counted)
    monkeypatch.setattr(package_step, "Mark", Counting)
    subject = subject_of(tiny.tiny_recipe(), store, CPU)
    batches = subject.batches()
    seconds, method = package_step.time_whole(subject, batches, tmp_path / "run", warm_up=3, steps=4, every=2)
    assert seconds == 10 and isinstance(method, Bcp)
    assert ended == [1, 2, 3, 4, 5, 6, 7]


def test_the_time_between_marks_is_that_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 102.5])
    monkeypatch.setattr(instruments, "perf_counter", lambda: next(times))
    begin, end = instruments.Mark(CPU), instruments.Mark(CPU)
    assert end.seconds_since(begin) == 2.5


def test_too_many_steps_and_invalid_settings_are_rejected(cli: CommandLine) -> None:
    for option in ("--steps", "--rounds"):
        assert option in cli.fails("bench", "demo-2d/bcp", option, "9" * 20, code=Code.OPTION_INVALID)
    error = cli.fails("bench", "demo-2d/bcp", "--set", "network.width=0", code=Code.SETTING_INVALID)
    assert error.startswith("graftseg: --set network.width=0: ")


def test_steps_are_spread_over_the_rounds() -> None:
    assert Plan(7, rounds=3).steps_a_round == 3
    assert Plan(90, rounds=3).steps_a_round == 30
    assert Plan().steps_a_round == 10


def test_the_usual_step_is_timed_over_whole_epochs() -> None:
    assert [whole_epochs(3, 2), whole_epochs(4, 2), whole_epochs(10, 11), whole_epochs(1, 2)] == [4, 4, 11, 2]
    assert whole_epochs(5, 11) == 5


def made(own_seconds: list[float], usual_seconds: list[float] | None) -> Measurement:
    facts = {
        "recipe": "la-8/bcp",
        "data": "phantoms",
        "device": "cpu with 2 threads",
        "patch": [112, 112, 80],
        "batch": {"labeled": 4, "unlabeled": 4},
        "precision": "bf16",
        "compiled": True,
        "captured": False,
        "rounds": 3,
        "steps_a_round": 10,
        "warm_up": 2,
        "usual_warm_up": 2,
    }
    ways = [
        Times(seconds, [dict.fromkeys(PHASES, 0.001)] * 3, [2**20, 3 * 2**20, 2 * 2**20])
        for seconds in (own_seconds, usual_seconds)
        if seconds is not None
    ]
    return Measurement(facts, ways[0], ways[1] if usual_seconds is not None else None)


def test_the_table_has_every_phase_and_the_ratio() -> None:
    lines = measurement_table(made([0.02, 0.01, 0.03], [0.08, 0.06, 0.07])).splitlines()
    rows = {line[:20].strip(): line[20:].split() for line in lines[2:-4]}
    assert rows == {
        "ms per step": ["graftseg", "usual", "way"],
        **{name: ["1.00", "1.00"] for name in PHASES},
        "sum of the phases": ["6.00", "6.00"],
        "whole step": ["20.00", "70.00"],
        "steps per second": ["50.00", "14.29"],
        "peak memory, MiB": ["2", "2"],
    }
    assert lines[0].startswith("la-8/bcp on cpu with 2 threads: patches of 112x112x80, 4 labeled and 4 unlabeled")
    assert lines[0].endswith(" per step, bf16, compiled, phantoms")
    assert (
        "Medians over 3 rounds of 10 timed steps (30 in total) after 2 warm-up steps (2 for the usual way)."
        in lines[-3]
    )
    assert lines[-2] == "The usual way takes 3.50 times as long (2.33 to 6.00 by round)."
    assert "close other programs" in lines[-1]


def test_similar_rounds_give_no_warning() -> None:
    lines = measurement_table(made([0.02, 0.02, 0.02], [0.060, 0.061, 0.065])).splitlines()
    assert lines[-1] == "The usual way takes 3.05 times as long (3.00 to 3.25 by round)."


def test_without_the_usual_step_there_is_no_ratio() -> None:
    text = measurement_table(made([0.02, 0.01, 0.03], None))
    assert "usual" not in text and "whole step" in text


def test_the_figures_are_json() -> None:
    content = made([0.02, 0.01, 0.03], [0.08, 0.06, 0.07]).to_json()
    assert content["ratio"] == 3.5
    assert content["usual"]["step_ms_by_round"] == [80, 60, 70]
    assert content["graftseg"] == {
        "step_ms": 20,
        "steps_per_second": 50,
        "phases_ms": dict.fromkeys(PHASES, 1.0),
        "peak_mib": 2,
        "step_ms_by_round": [20, 10, 30],
    }
    alone = made([0.02, 0.01, 0.03], None).to_json()
    assert (alone["usual"], alone["ratio"]) == (None, None)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_phantoms_have_the_sizes_of_the_benchmarks(dimensions: int, tmp_path: Path) -> None:
    recipe = tiny.tiny_recipe(dimensions)
    shape = synthetic_shape(recipe)
    assert shape == ((14, 14, 10) if dimensions == 2 else (24, 24, 18))
    made_store = synthetic_store(recipe, tmp_path)
    assert {case.shape for case in made_store.cases} == {shape}
    assert (len(made_store.of("labeled")), len(made_store.of("unlabeled"))) == (4, 4)
    assert len(made_store.classes) == (4 if dimensions == 2 else 2)
    assert subject_of(recipe, made_store, CPU).store is made_store


def test_phantoms_follow_the_labeled_cases_of_the_recipe(tmp_path: Path) -> None:
    batches = tiny.recipe_tree(2)["batches"] | {"labeled_cases": 7}
    made_store = synthetic_store(tiny.tiny_recipe(2, batches=batches), tmp_path)
    assert len(made_store.of("labeled")) == 7
    first, *_, last = (made_store.label(case) for case in made_store.of("labeled"))
    assert first.any() and last.any()


def test_a_recipe_without_copy_paste_is_refused() -> None:
    with user_error(Code.RECIPE_MISMATCH, "recipe demo-2d/supervised", "bcp"):
        self_training_stage(load_recipe("demo-2d/supervised"))


def test_a_recipe_with_another_way_to_paste_is_rejected() -> None:
    for name in ("acdc-3/bcp-in", "la-4/bcp-contact"):
        with user_error(Code.RECIPE_MISMATCH, f"recipe {name}", "boxes"):
            self_training_stage(load_recipe(name))


def test_a_store_of_another_recipe_is_refused(store: Store) -> None:
    other = tiny.tiny_recipe(2, data={"dimensions": 2, "intensity": {"rule": "minmax"}})
    with user_error(Code.STORE_MISMATCH, store.path, "data.intensity"):
        subject_of(other, store, CPU)


def test_a_threshold_needs_two_classes(store: Store) -> None:
    stages = [{"method": "bcp", "steps": 1, "settings": {"decision": "threshold"}}]
    with user_error(Code.RECIPE_MISMATCH, "recipe tiny", "4 classes"):
        subject_of(tiny.tiny_recipe(2, stages=stages), store, CPU)


def test_a_missing_h5py_is_reported(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with user_error(Code.PACKAGE_MISSING, "h5py", "--no-usual"):
        measure(tiny.tiny_recipe(), store.path, CPU, SMALL)


def test_the_command_prints_and_writes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, figures = tmp_path / "tiny.yaml", tmp_path / "figures.json"
    recipe.write_text(tiny.tiny_recipe().to_yaml())
    words = ["bench", recipe, "--data", store.path, "--steps", 1, "--rounds", 1, "--no-usual", "--json", figures]
    monkeypatch.setattr(sys, "argv", ["graftseg", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "whole step" in capsys.readouterr().out
    content = json.loads(figures.read_text())
    assert content["usual"] is None and content["recipe"] == "tiny" and content["graftseg"]["step_ms"] > 0


def test_phantoms_are_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(tiny.tiny_recipe().to_yaml())
    result = api.bench(recipe, device="cpu", overrides=["seed=3"], plan=Plan(1, 1, usual=False))
    assert result.facts["data"] == "phantoms" and result.graftseg.steps
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]
