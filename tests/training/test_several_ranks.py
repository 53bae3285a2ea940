"""One training on several ranks: files, resume, restarts, lost ranks and wrong requests."""

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file
from tiny import recipe_tree

from graftseg import api
from graftseg.core import ranks, torchrun
from graftseg.core.errors import Code, UserError
from graftseg.core.heartbeat import Heartbeat
from graftseg.core.run_folder import LOCK, RunFolder, read_log
from graftseg.core.tasks import LOCAL, Executor, Work, main_first_with_help
from graftseg.data.store import Store
from graftseg.recipes.recipe import Recipe, parse_recipe
from graftseg.training.several_ranks import check_batches
from graftseg.training.step import Stepper, StepResult
from graftseg.training.stopping import Stop
from rank_fakes import Task, on_ranks
from user_errors import user_error


def recipe_for(*, dropout: bool = False, labeled: int = 4, **loop: Any) -> Recipe:
    """Return the tiny recipe with batches for two ranks and with validation."""
    tree = recipe_tree()
    tree["batches"] |= {"labeled": labeled, "unlabeled": labeled, "validation_cases": 1}
    tree["network"] |= {"dropout": dropout}
    if not dropout:
        # Adam turns rounding errors into whole steps: biases before a norm have a gradient of zero
        tree["stages"] = [stage | {"optimizer": {"name": "sgd", "learning_rate": 0.05}} for stage in tree["stages"]]
    return parse_recipe(tree | {"selection": {"every": 3}, "loop": tree["loop"] | loop}, "tiny")


def train(
    recipe: Recipe, store: Path, out: Path, *, resume: bool = False, steps: int | None = None, device: str = "cpu"
) -> str:
    """Train, or fail after some steps; return the code of a user error."""
    if steps is not None:
        _fail_after(steps)
    try:
        api.train(recipe, store, out, device=device, resume=resume)
    except UserError as error:
        return str(error.code)
    except RuntimeError as error:
        return str(error)
    return "finished"


def _fail_after(steps: int) -> None:
    original, left = Stepper.__call__, [steps]

    def call(self: Stepper, step: int) -> StepResult:
        if not left[0]:
            setattr(Stepper, "__call__", original)  # noqa: B010 - mypy refuses an assignment
            raise RuntimeError("failed on purpose")
        left[0] -= 1
        return original(self, step)

    setattr(Stepper, "__call__", call)  # noqa: B010


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(RunFolder(out).weights_file)


def logged(out: Path) -> list[dict[str, Any]]:
    return read_log(RunFolder(out).log_file)


@pytest.fixture(scope="module")
def runs(store: Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[str]]]:
    """Return a folder of trainings on two ranks, and the outcomes of all trainings on both ranks."""
    folder, same, other = tmp_path_factory.mktemp("runs"), recipe_for(), recipe_for(dropout=True)
    assert train(same, store.path, folder / "grown", steps=6) == "failed on purpose"
    tasks: list[Task] = [
        partial(train, same, store.path, folder / "two"),
        partial(train, other, store.path, folder / "unbroken"),
        partial(train, other, store.path, folder / "broken", steps=6),
        partial(train, other, store.path, folder / "broken"),
        partial(train, other, store.path, folder / "elsewhere", steps=6),
        partial(train, recipe_for(labeled=2), store.path, folder / "undivided"),
        partial(train, same, store.path, folder / "two", resume=True),
        partial(train, same, folder / "missing", folder / "failed"),
        partial(with_help, list(range(5))),
        partial(with_help, []),
        partial(with_help, [1, -1, 2]),
        partial(train, same, store.path, folder / "grown", resume=True),
    ]
    return folder, on_ranks(tasks)


def test_ranks_train_as_one_process(runs: tuple[Path, list[list[str]]], store: Store, tmp_path: Path) -> None:
    """Two ranks leave the files of one run: the same weights, losses and scores except for rounding."""
    folder, outcomes = runs
    assert outcomes[0] == ["finished", "finished"]
    api.train(recipe_for(), store.path, tmp_path / "one", device="cpu")
    expected, found = weights(tmp_path / "one"), weights(folder / "two")
    assert max(float((expected[name] - found[name]).abs().max()) for name in expected) < 1e-5
    lines = list(zip(logged(tmp_path / "one"), logged(folder / "two"), strict=True))
    assert len(lines) == 9 + 3
    for one, two in lines:
        assert one.get("validation") == pytest.approx(two.get("validation"))
        assert one.get("terms", {}) == pytest.approx(two.get("terms", {}), abs=1e-5)
    ignored = {LOCK}
    names = [{path.name for path in run.iterdir()} - ignored for run in (tmp_path / "one", folder / "two")]
    assert names[0] == names[1]
    assert RunFolder(folder / "two").manifest()["ranks"] == 2


def test_restarted_ranks_resume_exactly(runs: tuple[Path, list[list[str]]]) -> None:
    """A restart of the same launch resumes without --resume, and gives the same bits, dropout included."""
    folder, outcomes = runs
    assert outcomes[2] == ["failed on purpose"] * 2
    assert outcomes[3] == ["finished", "finished"]
    assert (folder / "unbroken" / "model.safetensors").read_bytes() == (
        folder / "broken/model.safetensors"
    ).read_bytes()
    assert [line["global_step"] for line in logged(folder / "broken") if "total" in line] == list(range(1, 10))


def test_one_process_resumes_a_run_of_two_ranks(runs: tuple[Path, list[list[str]]], store: Store) -> None:
    folder, outcomes = runs
    assert outcomes[4] == ["failed on purpose"] * 2
    outcome = api.train(recipe_for(dropout=True), store.path, folder / "elsewhere", device="cpu", resume=True)
    assert outcome.steps == 9
    assert [line["global_step"] for line in logged(folder / "elsewhere") if "total" in line] == list(range(1, 10))


def test_two_ranks_resume_a_run_of_one_process(runs: tuple[Path, list[list[str]]]) -> None:
    folder, outcomes = runs
    assert outcomes[11] == ["finished", "finished"]
    expected, found = weights(folder / "two"), weights(folder / "grown")
    assert max(float((expected[name] - found[name]).abs().max()) for name in expected) < 1e-5
    assert [line["global_step"] for line in logged(folder / "grown") if "total" in line] == list(range(1, 10))


def test_user_errors_reach_all_ranks(runs: tuple[Path, list[list[str]]]) -> None:
    folder, outcomes = runs
    assert outcomes[5] == [Code.RECIPE_MISMATCH] * 2
    assert outcomes[6] == ["finished", "finished"]
    assert outcomes[7] == [Code.FOLDER_MISSING] * 2
    assert not (folder / "undivided" / "run.json").exists()


def square(number: int) -> tuple[str, int]:
    """Return the rank that computes a square, and the square."""
    if number < 0:
        raise UserError(Code.CASE_NAME, str(number), "negative", "nothing")
    return os.environ["RANK"], number**2


def with_help(numbers: list[int]) -> list[tuple[str, int]] | str:
    """Return the squares that rank 0 and its helpers compute, or the code of an error."""

    def function(executor: Executor) -> list[tuple[str, int]]:
        if executor is LOCAL:
            return []
        groups = executor.groups(numbers)
        with executor.running(squares, groups, Work("Squares", (), ())) as finished:
            return [result for wait in finished for result in wait()]

    try:
        return main_first_with_help(function)
    except UserError as error:
        return str(error.code)


def squares(numbers: list[int]) -> list[tuple[str, int]]:
    return [square(number) for number in numbers]


def test_rank_0_divides_tasks(runs: tuple[Path, list[list[Any]]]) -> None:
    _, outcomes = runs
    assert outcomes[8] == [[("0", 0), ("0", 1), ("0", 4), ("1", 9), ("1", 16)], []]
    assert outcomes[9] == [[], []]
    assert outcomes[10] == [Code.CASE_NAME] * 2


def silent_rank() -> str:
    if ranks.is_main():
        time.sleep(4)
        return "slow"
    try:
        ranks.all_sum(torch.ones(1))
    except UserError as error:
        return str(error.code)
    return "no error"


def hanging_rank_0(folder: Path) -> str:
    """Stop the process of rank 0 while it works alone, until rank 1 gives up."""

    def work() -> str:
        (folder / "process").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
        return "continued"

    try:
        return str(ranks.on_main(work))
    except UserError as error:
        os.kill(int((folder / "process").read_text()), signal.SIGCONT)
        return str(error.code)


def slow_rank_0() -> str:
    def work() -> str:
        time.sleep(2.5)
        return "slow"

    return str(ranks.on_main(work))


def test_silent_and_hanging_ranks_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rank 0 may work alone for longer than the timeout, but its process must not stop."""
    monkeypatch.setenv(torchrun.TIMEOUT_VARIABLE, "2")
    slow, silent, hanging = on_ranks([slow_rank_0, silent_rank, partial(hanging_rank_0, tmp_path)])
    assert slow == ["slow", "slow"]
    assert silent == ["slow", Code.RANK_LOST]
    assert hanging[1] == Code.RANK_LOST


def test_a_failure_of_rank_0_is_reported_even_if_the_others_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_group", ranks._Group(0, 2, None, 1.0, Heartbeat(None, 0, 1.0)))
    monkeypatch.setattr(ranks, "broadcast", Mock(side_effect=ranks.lost_rank("ended")))
    with pytest.raises(KeyboardInterrupt):
        ranks.on_main(Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        main_first_with_help(Mock(side_effect=KeyboardInterrupt))
    with user_error(Code.RANK_LOST, "rank"):
        ranks.on_main(Mock(return_value=1))


def test_a_signal_after_the_last_agreement_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    Stop([signal.SIGINT]).raise_late_signal()  # a single rank has stopped
    monkeypatch.setattr(ranks, "_group", ranks._Group(0, 2, None, 1.0, Heartbeat(None, 0, 1.0)))
    Stop([]).raise_late_signal()
    stop = Stop([signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):
        stop.raise_late_signal()
    monkeypatch.setattr(ranks, "largest_of_all", lambda number: number)
    assert stop.agree_to_stop()
    stop.raise_late_signal()


def test_a_late_signal_ends_the_command_and_the_run_can_be_resumed(
    monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path
) -> None:
    monkeypatch.setattr(Stop, "raise_late_signal", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        api.train(recipe_for(), store.path, tmp_path / "late", device="cpu")
    monkeypatch.undo()
    api.train(recipe_for(), store.path, tmp_path / "late", device="cpu", resume=True)
    api.train(recipe_for(), store.path, tmp_path / "plain", device="cpu")
    late, plain = weights(tmp_path / "late"), weights(tmp_path / "plain")
    assert all(torch.equal(late[name], plain[name]) for name in plain)


@pytest.mark.parametrize(
    ("labeled", "count", "where"), [(4, 3, "batches.labeled"), (6, 4, "batches.labeled"), (4, 4, "batches")]
)
def test_batches_must_divide(labeled: int, count: int, where: str) -> None:
    """Four images cannot be divided among three ranks. Among four ranks, a rank has no two images to paste."""
    with user_error(Code.RECIPE_MISMATCH, where, str(count)):
        check_batches(recipe_for(labeled=labeled), count)
    check_batches(recipe_for(labeled=labeled), 1)
    check_batches(recipe_for(labeled=4 * labeled), labeled)


def test_rows_of_a_rank_keep_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The halves of a rank's rows are the rank's rows of the halves, also in a concatenation."""
    monkeypatch.setattr(ranks, "_group", ranks._Group(1, 2, None, 1.0, Heartbeat(None, 1, 1.0)))
    labeled, unlabeled = torch.arange(8), torch.arange(8, 16)
    own = torch.cat([ranks.own_rows(labeled), ranks.own_rows(unlabeled)])
    assert own.tolist() == ranks.own_rows(torch.cat([labeled, unlabeled])).tolist() == list(range(1, 16, 2))
    assert own[:4].chunk(2)[0].tolist() == ranks.own_rows(labeled.chunk(2)[0]).tolist()


def test_only_rank_0_prints_the_exit_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(torchrun.EXIT_STATUS, str(tmp_path / "status"))
    assert torchrun.reported_status(2, is_final=True) == 2
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "test")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert torchrun.reported_status(2, is_final=True) == 0
    assert not (tmp_path / "status").exists()
    monkeypatch.setenv("RANK", "0")
    assert torchrun.reported_status(2, is_final=False) == 2
    assert torchrun.reported_status(2, is_final=True) == 0
    assert (tmp_path / "status").read_text() == "2"
