"""The training loop: what it logs and saves, when it stops, and that resuming is exact."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from tiny import tiny_recipe

from graftseg.core.errors import Code
from graftseg.core.run_folder import RunFolder, read_log
from graftseg.core.settings import Settings
from graftseg.core.types import Batch, Objective, Progress
from graftseg.data.batches import Batches
from graftseg.data.store import Store
from graftseg.inference.model import build_method
from graftseg.methods import METHODS, Method
from graftseg.methods.bcp import Bcp
from graftseg.networks import Networks
from graftseg.ops.optimizers import Adam, Poly, Sgd
from graftseg.recipes.recipe import Recipe
from graftseg.recipes.settings import SelectionSettings
from graftseg.training.checkpoint import checkpoints_in, load_checkpoint
from graftseg.training.loop import Outcome, Stage, fit
from graftseg.training.selection import Selector
from user_errors import user_error

CPU = torch.device("cpu")


class PowerCutError(Exception):
    """Ends a run between two steps."""


def run_fit(
    store: Store, folder: Path, recipe: Recipe | None = None, *, cut_at: int | None = None, resume: bool = False
) -> Outcome:
    recipe = recipe or tiny_recipe()
    torch.manual_seed(recipe.seed)
    batches = Batches(store, recipe.batches, seed=recipe.seed, device=CPU)
    build = partial(build_method, recipe, channels=store.channels, classes=len(store.classes), device=CPU)
    stages = [Stage(stage, partial(build, stage)) for stage in recipe.stages]
    calls = []

    def cut(method: Method) -> dict[str, float]:
        calls.append(method.training)
        if cut_at is not None and len(calls) == cut_at:
            raise PowerCutError
        return {"dice": 0.5}

    selector = Selector(recipe.selection, {"validation": cut}) if recipe.selection.every else None
    return fit(stages, batches, RunFolder(folder), recipe.loop, device=CPU, resume=resume, selector=selector)


def with_loop(recipe: Recipe | None = None, **changes: Any) -> Recipe:
    recipe = recipe or tiny_recipe()
    return recipe.model_copy(update={"loop": recipe.loop.model_copy(update=changes)})


def with_stage(index: int, **changes: Any) -> Recipe:
    recipe = tiny_recipe()
    stages = list(recipe.stages)
    stages[index] = stages[index].model_copy(update=changes)
    return recipe.model_copy(update={"stages": tuple(stages)})


def same_bits(first: Outcome, second: Outcome) -> bool:
    one, two = first.method.state_dict(), second.method.state_dict()
    return one.keys() == two.keys() and all(torch.equal(value, two[key]) for key, value in one.items())


@pytest.fixture(scope="module")
def whole(store: Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Path]:
    folder = tmp_path_factory.mktemp("whole")
    return run_fit(store, folder), folder


def test_the_log_has_every_step_and_term(whole: tuple[Outcome, Path]) -> None:
    lines = read_log(whole[1] / "log.jsonl")
    assert [line["global_step"] for line in lines] == list(range(1, 10))
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 1, 2, 3, 4, 5]
    assert [line["stage"] for line in lines] == [0] * 4 + [1] * 5
    assert set(lines[0]["terms"]) == {"L_pretrain"} and set(lines[-1]["terms"]) == {"L_in", "L_out"}
    assert lines[-1]["total"] == pytest.approx(sum(lines[-1]["terms"].values()), abs=1e-6)
    assert [line["lr"] for line in lines[:4]] == pytest.approx([0.01 * (1 - t / 4) ** 0.9 for t in range(4)])


def test_checkpoints_and_snapshots_are_left(whole: tuple[Outcome, Path]) -> None:
    outcome, folder = whole
    assert outcome.steps == 9 and outcome.stopped_by is None
    assert set(outcome.seconds_per_step) == {"batch", "forward", "backward", "update"}
    assert [path.name for path in checkpoints_in(folder / "checkpoints")] == [
        "step-00000008.ckpt",
        "step-00000009.ckpt",
    ]
    assert sorted(path.name for path in (folder / "snapshots").iterdir()) == [
        f"{step:06d}.npz" for step in (1, 4, 5, 9)
    ]


def test_two_runs_are_the_same_and_another_seed_is_not(
    store: Store, tmp_path: Path, whole: tuple[Outcome, Path]
) -> None:
    assert same_bits(run_fit(store, tmp_path / "again"), whole[0])
    other = tiny_recipe(seed=1)
    assert not same_bits(run_fit(store, tmp_path / "other", other), whole[0])


# before the first checkpoint, at the end of the first stage, after it, and after the last step
CUTS = (1, 4, 5, 9)
OTHER_CUTS = [pytest.param(step, marks=pytest.mark.slow) for step in range(1, 10) if step not in CUTS]


@pytest.mark.parametrize("cut_at", [*CUTS, *OTHER_CUTS])
def test_resuming_after_a_cut_at_any_step_changes_no_bit(
    store: Store, tmp_path: Path, whole: tuple[Outcome, Path], cut_at: int
) -> None:
    recipe = with_loop(tiny_recipe(selection={"every": 1}), checkpoint_every=2)
    with pytest.raises(PowerCutError):
        run_fit(store, tmp_path, recipe, cut_at=cut_at)
    resumed = run_fit(store, tmp_path, resume=True)
    assert same_bits(resumed, whole[0])
    lines = [line for line in read_log(tmp_path / "log.jsonl") if "terms" in line]
    assert [line["terms"] for line in lines] == [line["terms"] for line in read_log(whole[1] / "log.jsonl")]


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(
    store: Store, tmp_path: Path, whole: tuple[Outcome, Path]
) -> None:
    with pytest.raises(PowerCutError):
        run_fit(store, tmp_path, with_loop(tiny_recipe(selection={"every": 1}), checkpoint_every=2), cut_at=7)
    newest = checkpoints_in(tmp_path / "checkpoints")[-1]
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 4
    newest.write_bytes(content)
    assert same_bits(run_fit(store, tmp_path, resume=True), whole[0])


def test_resuming_a_finished_run_does_nothing(store: Store, tmp_path: Path) -> None:
    first = run_fit(store, tmp_path)
    again = run_fit(store, tmp_path, resume=True)
    assert again.steps == 9 and same_bits(first, again)


def test_an_exploding_loss_names_step_term_and_cases(store: Store, tmp_path: Path) -> None:
    wild = with_stage(0, optimizer=Adam().model_copy(update={"learning_rate": 1e30}))
    with user_error(Code.LOSS_NOT_FINITE, "stage 1, step 2", "L_pretrain") as caught:
        run_fit(store, tmp_path, wild)
    assert "labeled_00" in caught.value.finding
    assert checkpoints_in(tmp_path / "checkpoints") == []
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl")] == [1]


def test_validation_does_not_hide_where_a_loss_exploded(store: Store, tmp_path: Path) -> None:
    wild = with_loop(with_stage(0, optimizer=Adam().model_copy(update={"learning_rate": 1e30})), log_every=100)
    wild = wild.model_copy(update={"selection": SelectionSettings(every=3)})
    with user_error(Code.LOSS_NOT_FINITE, "stage 1, step 2", "L_pretrain"):
        run_fit(store, tmp_path, wild)


def test_weights_that_are_not_finite_are_never_saved(store: Store, tmp_path: Path) -> None:
    """The loss of the first step is finite, but the updated weights are not."""
    wild = with_loop(with_stage(0, optimizer=Sgd().model_copy(update={"learning_rate": 1e39})), checkpoint_every=1)
    with user_error(Code.LOSS_NOT_FINITE, "stage 1, step 1", "weights"):
        run_fit(store, tmp_path, wild)
    assert checkpoints_in(tmp_path / "checkpoints") == []


class Overflowing(Bcp):
    """Weights and losses stay finite, but a running variance of one network does not."""

    network: ClassVar[str]

    def after_step(self, now: Progress) -> None:
        super().after_step(now)
        buffers = self.get_submodule(self.network).named_buffers()
        next(buffer for name, buffer in buffers if name.endswith("running_var")).fill_(torch.inf)


@pytest.mark.parametrize("network", ["student", "teacher"])
def test_statistics_that_are_not_finite_are_never_saved(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    monkeypatch.setitem(METHODS, "overflowing", type("Named", (Overflowing,), {"network": network}))
    recipe = tiny_recipe(stages=[{"method": "overflowing", "steps": 2}])
    with user_error(Code.LOSS_NOT_FINITE, "stage 1, step 2", "weights"):
        run_fit(store, tmp_path, recipe)
    assert checkpoints_in(tmp_path / "checkpoints") == []


class Duel(Method):
    """A student and a critic, each with an objective of its own; notes what the second one sees."""

    trained_modules = ("student", "critic")
    uses_unlabeled = False

    def __init__(self, config: Settings, networks: Networks) -> None:
        super().__init__(config, networks)
        self.critic = torch.nn.Linear(1, 1)
        self.seen: list[tuple[bool, bool]] = []

    def objectives(self, batch: Batch, now: Progress) -> Iterator[Objective]:
        before = [parameter.clone() for parameter in self.parameters()]
        yield Objective("student", {"L_student": self.student(batch.labeled.images).square().mean()})
        after = list(self.parameters())
        count = len(list(self.student.parameters()))
        same = [torch.equal(old, new) for old, new in zip(before, after, strict=True)]
        self.seen.append((all(same[:count]), all(same[count:])))
        yield Objective("critic", {"L_critic": self.critic(torch.ones(1, 1)).square().sum()})


def test_a_second_objective_sees_the_updated_student(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "duel", Duel)
    adam = {"name": "adam", "learning_rate": 0.25}
    stages = [{"method": "duel", "steps": 4, "optimizers": {"critic": adam}}]
    outcome = run_fit(store, tmp_path, tiny_recipe(stages=stages))
    assert isinstance(outcome.method, Duel)
    assert outcome.method.seen == [(False, True)] * 4
    assert set(read_log(tmp_path / "log.jsonl")[0]["terms"]) == {"L_student", "L_critic"}
    state = load_checkpoint(checkpoints_in(tmp_path / "checkpoints")[-1])
    assert state["optimizers"]["critic"]["param_groups"][0]["lr"] == 0.25
    assert state["optimizers"]["student"]["param_groups"][0]["lr"] == 0.01


def test_validation_is_logged_and_disturbs_nothing(store: Store, tmp_path: Path, whole: tuple[Outcome, Path]) -> None:
    outcome = run_fit(store, tmp_path, tiny_recipe(selection={"every": 4}))
    lines = [line for line in read_log(tmp_path / "log.jsonl") if "validation" in line]
    assert [(line["global_step"], line["validation"]) for line in lines] == [(4, {"dice": 0.5}), (8, {"dice": 0.5})]
    assert same_bits(outcome, whole[0])


def test_logging_and_saving_do_not_change_the_result(store: Store, tmp_path: Path, whole: tuple[Outcome, Path]) -> None:
    quiet = with_loop(log_every=100, checkpoint_every=100, snapshots=0)
    assert same_bits(run_fit(store, tmp_path, quiet), whole[0])
    assert len(read_log(tmp_path / "log.jsonl")) == 9
    assert not (tmp_path / "snapshots").exists()


@pytest.mark.parametrize(
    ("stage", "changes"),
    [
        (1, {"carry_optimizer": True}),
        (1, {"optimizer": Adam(learning_rate=0.01, schedule=Poly(), clip_gradient=1e-9)}),
        (0, {"steps": 3}),
    ],
)
def test_settings_of_a_stage_take_effect(
    store: Store, tmp_path: Path, whole: tuple[Outcome, Path], stage: int, changes: dict[str, Any]
) -> None:
    assert not same_bits(run_fit(store, tmp_path, with_stage(stage, **changes)), whole[0])


def test_bf16_runs_if_the_device_supports_it(store: Store, tmp_path: Path) -> None:
    outcome = run_fit(store, tmp_path, with_loop(precision="bf16"))
    assert outcome.steps == 9
    assert all(torch.isfinite(value.float()).all() for value in outcome.method.state_dict().values())


def test_a_log_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"global_step": 1}) + '\n{"global_st')
    assert read_log(path) == [{"global_step": 1}]
