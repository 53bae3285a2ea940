"""Runs with each protocol: the reported checkpoint, the labels that are opened, and scoring without side effects."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from command_line import CommandLine
from safetensors.torch import load_file
from torch import Tensor
from typer.testing import CliRunner

from graftseg import api
from graftseg.cli.app import app
from graftseg.core.errors import Code
from graftseg.core.run_folder import RunFolder, read_log
from graftseg.data.grid import Grid
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.store import Store, open_store
from graftseg.evaluation.metrics import dice
from graftseg.inference.model import build_method, load_weights
from graftseg.inference.predictor import Predictor
from graftseg.methods import Method
from graftseg.recipes.recipe import Recipe, load_recipe
from graftseg.training.checkpoint import checkpoints_in, load_checkpoint
from graftseg.training.selection import CaseScores, Selector, build_selector, scored_cases
from user_errors import user_error

CPU = torch.device("cpu")


def recipe_with(dimensions: int = 2, *, held_out: int = 1, **selection: Any) -> Recipe:
    tree = tiny.recipe_tree(dimensions)
    tree["batches"] |= {"validation_cases": held_out}
    return tiny.tiny_recipe(dimensions, batches=tree["batches"], selection={"every": 1, **selection})


def train(recipe: Recipe, data: Path, out: Path, **more: Any) -> RunFolder:
    api.train(recipe, data, out, device="cpu", **more)
    return RunFolder(out)


def scores_of(run: RunFolder, name: str = "dice") -> dict[int, float]:
    lines = [line for line in read_log(run.log_file) if "validation" in line]
    return {line["global_step"]: line["validation"][name] for line in lines if name in line["validation"]}


def losses_of(run: RunFolder) -> list[dict[str, float]]:
    return [line["terms"] for line in read_log(run.log_file) if "terms" in line]


def best_step(scores: dict[int, float], first: int, last: int) -> int:
    """Return the first step of a stage with its highest score."""
    return max((step for step in scores if first <= step <= last), key=lambda step: (scores[step], -step))


@pytest.fixture(scope="module")
def quiet(store: Store, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that scores almost nothing: its held-out case once, at a step that it does not reach."""
    return train(recipe_with(every=100), store.path, tmp_path_factory.mktemp("quiet") / "run")


@pytest.fixture(scope="module")
def oracle(store: Store, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return train(recipe_with(oracle=True), store.path, tmp_path_factory.mktemp("oracle") / "run")


@pytest.fixture(scope="module")
def paper(store: Store, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return train(recipe_with(protocol="paper", cases="test"), store.path, tmp_path_factory.mktemp("paper") / "run")


def test_scoring_at_every_step_changes_no_bit(quiet: RunFolder, oracle: RunFolder) -> None:
    assert losses_of(oracle) == losses_of(quiet) and len(losses_of(quiet)) == 9
    assert oracle.weights_file.read_bytes() == quiet.weights_file.read_bytes()
    states = [load_checkpoint(checkpoints_in(run.checkpoints)[-1]) for run in (oracle, quiet)]
    assert torch.equal(states[0]["random"], states[1]["random"])
    for name, tensor in states[0]["method"].items():
        assert torch.equal(tensor, states[1]["method"][name]), name


def test_the_oracle_keeps_the_best_on_test_for_the_record(oracle: RunFolder) -> None:
    facts, scores = oracle.manifest(), scores_of(oracle, "test dice")
    assert list(scores) == list(scores_of(oracle)) == list(range(1, 10))
    step = best_step(scores, 5, 9)
    assert (facts["protocol"], facts["checkpoint"]) == ("last", "last")
    assert {key: facts["best"][key] for key in ("on", "step", "stage")} == {"on": "test", "step": step, "stage": 1}
    assert facts["best"]["dice"] == scores[step]
    assert facts["store"]["scored"] == {"validation": ["labeled_003"], "test": ["test_000", "test_001"]}


def test_without_scores_no_best_checkpoint_is_kept(quiet: RunFolder) -> None:
    facts = quiet.manifest()
    assert facts["checkpoint"] == "last" and "best" not in facts and not quiet.best_file.exists()


def test_paper_reports_the_best_on_test(paper: RunFolder) -> None:
    scores, facts = scores_of(paper, "test dice"), paper.manifest()
    step = best_step(scores, 5, 9)
    assert (facts["protocol"], facts["checkpoint"]) == ("paper", f"best on test, step {step} (protocol paper)")
    assert facts["best"]["dice"] == scores[step] and facts["best"]["sha256"] == facts["weights"]
    assert paper.best_file.read_bytes() == paper.weights_file.read_bytes()


@pytest.mark.parametrize(
    ("selection", "from_best"),
    [
        pytest.param({"protocol": "paper", "cases": "test"}, True, marks=pytest.mark.slow),
        ({"protocol": "val"}, True),
        ({"oracle": True}, False),
    ],
)
def test_the_next_stage_starts_from_the_best_or_the_last_student(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, selection: dict[str, Any], from_best: bool
) -> None:
    """Of the four steps of the first stage, only the third is scored."""
    seen: dict[str, dict[str, Tensor]] = {}
    score, start_from = Selector.score, Method.start_from

    def note_score(self: Selector, method: Method, *others: Any, **place: Any) -> dict[str, float]:
        if place["step"] == 3:
            seen["third"] = copy_of(method)
        return score(self, method, *others, **place)

    def note_start(self: Method, previous: Method) -> None:
        seen["begin"] = copy_of(previous)
        start_from(self, previous)

    monkeypatch.setattr(Selector, "score", note_score)
    monkeypatch.setattr(Method, "start_from", note_start)
    train(recipe_with(every=3, **selection), store.path, tmp_path / "run")
    same = [torch.equal(tensor, seen["third"][name]) for name, tensor in seen["begin"].items()]
    assert all(same) if from_best else not any(same[:2])


def copy_of(method: Method) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in method.student.state_dict().items()}


def test_the_shipped_network_has_the_score_of_its_best_step(store: Store, paper: RunFolder) -> None:
    recipe = load_recipe(paper.recipe_file)
    method = build_method(recipe, recipe.stages[-1], store.channels, len(store.classes), CPU).eval()
    load_weights(method, paper.weights_file)
    scores = CaseScores(recipe, store, scored_cases(recipe, store)["test"], CPU)(method)
    assert scores["dice"] == paper.manifest()["best"]["dice"]


def test_val_reports_the_best_on_the_held_out_case(store: Store, tmp_path: Path) -> None:
    run = train(recipe_with(protocol="val", every=2), store.path, tmp_path / "run")
    scores, facts = scores_of(run), run.manifest()
    assert list(scores) == [2, 4, 6, 8]
    step = best_step(scores, 5, 9)
    assert facts["checkpoint"] == f"best on validation, step {step}"
    assert facts["best"]["on"] == "validation" and facts["best"]["dice"] == scores[step]
    assert "test dice" not in read_log(run.log_file)[-1].get("validation", {})
    assert facts["store"]["scored"] == {"validation": ["labeled_003"]}


class PowerCutError(Exception):
    """Ends a run between two steps."""


@pytest.mark.parametrize("cut_at", [4, *(pytest.param(step, marks=pytest.mark.slow) for step in (1, 3, 6, 9))])
def test_a_resumed_run_ends_with_the_same_best(
    store: Store, paper: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut_at: int
) -> None:
    """The run stops after the student is scored and before the score is saved."""
    recipe = recipe_with(protocol="paper", cases="test")
    with monkeypatch.context() as patch:
        looks: list[int] = []

        def cut(recorder: Any, line: dict[str, Any]) -> None:
            looks.append(line["global_step"])
            if len(looks) == cut_at:
                raise PowerCutError

        patch.setattr("graftseg.training.recorder.Recorder.scores", cut)
        with pytest.raises(PowerCutError):
            train(recipe, store.path, tmp_path / "run")
    resumed = train(recipe, store.path, tmp_path / "run", resume=True)
    assert resumed.weights_file.read_bytes() == paper.weights_file.read_bytes()
    assert resumed.best_file.read_bytes() == paper.best_file.read_bytes()
    for key in ("checkpoint", "best", "weights"):
        assert resumed.manifest()[key] == paper.manifest()[key]
    assert losses_of(resumed) == losses_of(paper)


def test_momenta_are_carried_over_from_the_best_step(store: Store, tmp_path: Path) -> None:
    tree = tiny.recipe_tree()
    tree["stages"][1]["carry_optimizer"] = True
    runs = []
    for name, stages in (("carried", tree["stages"]), ("fresh", tiny.recipe_tree()["stages"])):
        recipe = tiny.tiny_recipe(
            stages=stages, selection={"every": 1, "protocol": "paper", "cases": "test"}, batches=tree["batches"]
        )
        runs.append(train(recipe, store.path, tmp_path / name))
    carried, fresh = (losses_of(run) for run in runs)
    assert carried[:5] == fresh[:5], "the first loss comes before the first update"
    assert carried[5:] != fresh[5:]


def test_a_run_too_short_to_be_scored_ships_its_last_student(
    store: Store, quiet: RunFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = train(recipe_with(protocol="val", every=100), store.path, tmp_path / "run")
    assert run.weights_file.read_bytes() == quiet.weights_file.read_bytes()
    facts = run.manifest()
    assert (facts["protocol"], facts["checkpoint"]) == ("val", "last") and "best" not in facts
    assert "stage 1 ended without a score" in caplog.text and "stage 2 ended without a score" in caplog.text


@pytest.fixture
def copied(store: Store, tmp_path: Path) -> Store:
    """A copy of the store, which a test may damage."""
    return open_store(Path(shutil.copytree(store.path, tmp_path / "copied")))


def remove_labels(store: Store, *splits: str) -> None:
    for case in store.cases:
        if case.split in splits and case.label is not None:
            (store.path / "cases" / case.label).unlink()


@pytest.mark.parametrize(
    "selection", [{"every": 3}, {"every": 3, "protocol": "val"}, {"every": 3, "protocol": "paper"}]
)
def test_labels_of_test_cases_are_not_opened(copied: Store, tmp_path: Path, selection: dict[str, Any]) -> None:
    remove_labels(copied, "test")
    assert train(recipe_with(**selection), copied.path, tmp_path / "run").manifest()["status"] == "finished"


@pytest.mark.parametrize("selection", [{"oracle": True}, {"protocol": "paper", "cases": "test"}])
def test_labels_of_test_cases_are_opened_if_the_recipe_scores_them(
    copied: Store, tmp_path: Path, selection: dict[str, Any]
) -> None:
    remove_labels(copied, "test")
    with user_error(Code.DAMAGED_FILE, "test_000.label.npy"):
        train(recipe_with(**selection), copied.path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_labels_of_unlabeled_cases_are_never_opened(copied: Store, tmp_path: Path) -> None:
    (copied.path / "cases" / str(copied.of("labeled")[2].label)).unlink()
    batches = tiny.recipe_tree()["batches"] | {"labeled_cases": 2, "validation_cases": 1}
    recipe = tiny.tiny_recipe(batches=batches, selection={"every": 3, "protocol": "paper", "cases": "test"})
    assert train(recipe, copied.path, tmp_path / "run").manifest()["store"]["labeled"] == [
        "labeled_000",
        "labeled_001",
    ]


def test_a_changed_label_of_a_scored_case_is_noticed(copied: Store, tmp_path: Path) -> None:
    label = copied.path / "cases" / str(copied.of("test")[1].label)
    content = bytearray(label.read_bytes())
    content[-1] ^= 1
    label.write_bytes(content)
    with user_error(Code.DAMAGED_FILE, label.name):
        train(recipe_with(oracle=True), copied.path, tmp_path / "run")


def test_training_from_scans_prepares_test_cases_only_if_they_are_scored(scans: Path, tmp_path: Path) -> None:
    seen = train(recipe_with(oracle=True, every=3), scans, tmp_path / "oracle")
    blind = train(recipe_with(every=3), scans, tmp_path / "blind")
    assert len(list((seen.store / "cases").glob("test*.label.npy"))) == 2
    assert not list((blind.store / "cases").glob("test*"))
    assert seen.manifest()["store"]["identity"] == blind.manifest()["store"]["identity"]


@pytest.mark.parametrize("protocol", ["last", "val", "paper"])
def test_scoring_needs_cases(store: Store, tmp_path: Path, protocol: str) -> None:
    with user_error(Code.RECIPE_MISMATCH, store.path, "batches.validation_cases"):
        train(recipe_with(held_out=0, protocol=protocol), store.path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_scoring_on_test_cases_needs_their_labels(scans: Path, tmp_path: Path) -> None:
    bare = Path(shutil.copytree(scans, tmp_path / "scans"))
    shutil.rmtree(bare / "labelsTs")
    with user_error(Code.RECIPE_MISMATCH, bare, "test"):
        train(recipe_with(protocol="paper", cases="test", held_out=0), bare, tmp_path / "run")


def test_the_oracle_needs_no_validation_cases(store: Store) -> None:
    selector = build_selector(recipe_with(held_out=0, oracle=True), store, CPU)
    assert selector is not None and list(scored_cases(recipe_with(held_out=0, oracle=True), store)) == ["test"]
    assert build_selector(tiny.tiny_recipe(), store, CPU) is None


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_scans(tmp_path_factory.mktemp("volumes"), 3, labeled=2, unlabeled=1, test=2)


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("stride", [None, 5])
def test_scores_are_those_of_predicted_label_maps(
    volumes: Path, tmp_path: Path, dimensions: int, stride: int | None
) -> None:
    """Scores of slices and windows equal those of a prediction and the definition of Dice."""
    tree = tiny.recipe_tree(dimensions)
    recipe = tiny.tiny_recipe(
        dimensions,
        batches=tree["batches"] | {"patch": [8] * dimensions},
        inference={"largest_component": True, "window": "uniform"},
        selection={"every": 1, "oracle": True, "stride": stride and [stride] * dimensions},
    )
    store = prepare(read_layout(volumes), tmp_path / "store", recipe.data)
    torch.manual_seed(4)
    method = build_method(recipe, recipe.stages[-1], store.channels, len(store.classes), CPU).eval()
    settings = recipe.inference.model_copy(update={"largest_component": False, "stride": recipe.selection.stride})
    predictor = Predictor(method.segment, recipe.batches.patch, settings, len(store.classes), CPU)
    expected = []
    for case in store.of("test"):
        labels = predictor.maps(torch.from_numpy(np.array(store.image(case))), Grid.identity(case.shape)).labels
        reference = np.array(store.label(case))
        expected.append([dice(labels == value, reference == value) for value in range(1, len(store.classes))])
    scores = CaseScores(recipe, store, store.of("test"), CPU)(method)
    assert list(scores) == ["dice", *(f"dice {name}" for name in store.classes[1:])]
    assert list(scores.values())[1:] == pytest.approx(np.mean(expected, axis=0), abs=1e-15)
    assert scores["dice"] == pytest.approx(np.mean(expected), abs=1e-15) and 0 < scores["dice"] < 1


@pytest.mark.parametrize(("protocol", "score"), [("val", 1.0), ("paper", 0.0)])
def test_an_empty_prediction_of_an_absent_class(store: Store, tmp_path: Path, protocol: str, score: float) -> None:
    """Agreement on nothing is perfect, but under the paper's protocol an empty prediction scores 0."""
    recipe = recipe_with(protocol=protocol)
    case = store.of("labeled")[0]
    method = build_method(recipe, recipe.stages[-1], store.channels, len(store.classes), CPU).eval()
    present = np.array(store.label(case))
    present[present == 3] = 0
    scores = CaseScores(recipe, store, [case], CPU)
    assert scores._loaded is not None
    scores._loaded[0][1].copy_(torch.from_numpy(present))

    def all_background(images: Tensor) -> Tensor:
        return torch.eye(4)[0].view(1, 4, 1, 1).expand(len(images), -1, *images.shape[2:])

    method.segment = all_background  # type: ignore[method-assign]
    found = list(scores(method).values())
    assert found[1:] == [0.0, 0.0, score] and found[0] == score / 3


def test_the_best_file_contains_only_the_student(store: Store, oracle: RunFolder) -> None:
    recipe = load_recipe(oracle.recipe_file)
    method = build_method(recipe, recipe.stages[-1], store.channels, len(store.classes), CPU)
    assert load_file(oracle.best_file).keys() == method.student.state_dict().keys()


def test_resuming_under_another_protocol_is_refused(store: Store, paper: RunFolder) -> None:
    with user_error(Code.RUN_MISMATCH, paper.path, "(selection.cases, selection.protocol)"):
        train(recipe_with(protocol="val"), store.path, paper.path, resume=True)


def test_the_report_names_the_checkpoint(scans: Path, paper: RunFolder, tmp_path: Path) -> None:
    run = Path(shutil.copytree(paper.path, tmp_path / "run"))
    predicted = api.predict(run, scans / "imagesTs", device="cpu")
    api.evaluate(predicted.folder, scans / "labelsTs")
    page = api.report(run).read_text()
    assert paper.manifest()["checkpoint"] in page and "optimistic" in page


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(recipe_with(every=3).to_yaml())
    return path


def test_the_command_line_names_a_protocol(store: Store, recipe_file: Path, tmp_path: Path) -> None:
    words = ["train", str(recipe_file), "--data", str(store.path), "--out", str(tmp_path / "run"), "--device", "cpu"]
    assert CliRunner().invoke(app, [*words, "--protocol", "val"]).exit_code == 0
    facts = RunFolder(tmp_path / "run").manifest()
    assert facts["protocol"] == "val" and facts["checkpoint"].startswith("best on validation, step ")


@pytest.mark.parametrize(
    "words",
    [
        ["--protocol", "best"],
        ["--protocol", "val", "--set", "selection.every=null", "--set", "batches.validation_cases=0"],
    ],
)
def test_invalid_protocols_are_refused(
    cli: CommandLine, store: Store, recipe_file: Path, tmp_path: Path, words: list[str]
) -> None:
    status, _, error = cli("train", recipe_file, "--data", store.path, "--out", tmp_path / "run", *words)
    assert status == 2 and words[1] in error
    assert not (tmp_path / "run").exists()
