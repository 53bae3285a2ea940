"""The shipped network: chosen on held-out labels, and used by ``predict``."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch

from graftseg import api
from graftseg.core.errors import Code, UserError
from graftseg.core.files import write_checked
from graftseg.core.run_folder import RunFolder, Shipped
from graftseg.core.teacher_checks import Decision, TeacherCheck
from graftseg.data.batches import training_cases
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.store import open_store
from graftseg.evaluation.scores import Evaluation, Row
from graftseg.inference.export.weights import load as load_exported
from graftseg.inference.model import build_method, load_network
from graftseg.reporting.notices import notices_of
from graftseg.training import shipping, unlabeled_predictions, with_baseline
from graftseg.training.recorder import BASELINE
from graftseg.training.run import complete as train_baseline
from graftseg.training.shipping import FinalCheck, shipped_after_folds, shipped_after_validation
from graftseg.training.unlabeled_predictions import CasePredictions, final_work
from graftseg.training.unlabeled_use import unlabeled_use
from scan_summaries import GOOD, LABELED, changed

STAGES = [
    {"method": "supervised", "steps": 2, "optimizer": {"name": "adam"}},
    {"method": "bcp", "steps": 2, "optimizer": {"name": "adam"}},
]


def scores(*dice: float) -> Evaluation:
    rows = tuple(Row(f"case{number}", 1, "a", value, value, *[1.0] * 10) for number, value in enumerate(dice))
    return Evaluation(rows, "standard")


@pytest.mark.parametrize(
    ("run", "baseline", "network"),
    [((0.8, 0.9), (0.7, 0.9), "run"), ((0.8,), (0.8,), "run"), ((0.7,), (0.71,), "baseline")],
)
def test_the_better_network_is_shipped(run: Any, baseline: Any, network: str) -> None:
    assert shipped_after_folds(scores(*run), scores(*baseline)).network == network


def test_folds_without_self_training_are_compared_neutrally() -> None:
    shipped = shipped_after_folds(scores(0.8, 0.9), scores(0.7, 0.9), both_supervised=True)
    assert shipped.sentence == (
        "the network of the run, trained without unlabeled scans (85.00 % mean Dice of the run on held-out labels, "
        "80.00 % of its baseline)"
    )


def test_the_best_network_on_validation_cases_is_shipped() -> None:
    shipped = shipped_after_validation({"average": 0.8, "run": 0.7, "baseline": 0.9}, 2)
    reason = "mean Dice on 2 validation cases: 80.00 % average, 70.00 % with the unlabeled scans, 90.00 % without"
    assert shipped == Shipped("baseline", reason)
    assert shipped_after_validation({"average": 0.8, "run": 0.8, "baseline": 0.8}, 2).network == "average"
    skipped = shipped_after_validation({"run": 0.8, "baseline": 0.8}, 1, both_supervised=True)
    assert skipped == Shipped("run", "mean Dice on 1 validation case: 80.00 % run, 80.00 % baseline", True)


@pytest.mark.parametrize(
    ("dice", "network"), [((0.5, 0.4, 0.3), "average"), ((0.3, 0.5, 0.4), "run"), ((0.3, 0.4, 0.5), "baseline")]
)
def test_validation_cases_choose_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dice: tuple[float, ...], network: str
) -> None:
    seen: list[list[str]] = []

    def score(recipe: Any, store: Any, method: Any, cases: Any, device: Any) -> dict[str, float]:
        seen.append([case.name for case in cases])
        return {"a": dice[len(seen) - 1] - 0.1, "b": dice[len(seen) - 1] + 0.1}

    monkeypatch.setattr(shipping, "class_dice", score)
    scans = tiny.write_scans(tmp_path / "scans")
    batches = {**tiny.recipe_tree()["batches"], "validation_cases": 2}
    settings: dict[str, Any] = {"baseline": True, "average_with_baseline": True, "selection": {"every": 2}}
    api.train(tiny.tiny_recipe(stages=STAGES, batches=batches, **settings), scans, tmp_path / "run", device="cpu")
    run = RunFolder(tmp_path / "run")
    shipped = run.shipped()
    assert seen == [run.manifest()["store"]["scored"]["validation"]] * 3
    assert shipped is not None and shipped.network == network and "50.00 %" in shipped.reason
    assert run.weights_file == (run.average_file if network == "average" else run.trained_file)
    assert shipped.reason in notices_of(run)[0].sentence
    assert api.predict(run.path, scans / "imagesTs", device="cpu").network == shipped.sentence


def choose(run: RunFolder, monkeypatch: pytest.MonkeyPatch, final: FinalCheck | None) -> Shipped:
    monkeypatch.setattr(shipping, "check_networks", lambda *arguments: final)
    monkeypatch.setattr(shipping, "training_cases", lambda *arguments: SimpleNamespace(validation=()))
    recipe: Any = SimpleNamespace(average_with_baseline=False, batches=None)
    nothing: Any = None
    return shipping.shipped_without_folds(recipe, nothing, run, torch.device("cpu"))


@pytest.mark.parametrize("final", [None, FinalCheck(30, {"a": "no foreground"}, {})])
def test_without_held_out_labels_the_choice_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, final: FinalCheck | None
) -> None:
    shipped = choose(RunFolder(tmp_path), monkeypatch, final)
    assert shipped == Shipped("run", shipping.BENEFIT_UNKNOWN) and "--folds" in shipped.reason


def test_the_time_of_the_baseline_includes_the_final_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = []

    def complete(*arguments: Any, **options: Any) -> None:
        labels.append(arguments[4])
        train_baseline(*arguments, **options)

    monkeypatch.setattr(with_baseline, "complete", complete)
    stages = [STAGES[0], STAGES[1] | {"check_teacher": True}]
    recipe, scans = tiny.tiny_recipe(stages=stages, baseline=True), tiny.write_scans(tmp_path / "scans")
    api.train(recipe, scans, tmp_path / "run", device="cpu")
    store = open_store(RunFolder(tmp_path / "run").store)
    assert labels == [replace(BASELINE, later=(final_work(recipe, training_cases(store, recipe.batches)),))]
    assert labels[0].later[0].before > 0


def write_checks(run: RunFolder, *decisions: Decision) -> None:
    checks = [TeacherCheck(1, 4, {"a": "no foreground"}, decision).to_json() for decision in decisions]
    run.teacher_file.write_text(json.dumps({"checks": checks}))


@pytest.mark.parametrize(("decision", "keyword"), [("skip", "too few predictions"), ("stop", "drifted")])
def test_abandoned_self_training_ships_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decision: Decision, keyword: str
) -> None:
    run = RunFolder(tmp_path)
    write_checks(run, "continue", decision)
    shipped = choose(run, monkeypatch, None)
    assert shipped.network == "baseline" and keyword in shipped.reason


def test_skipped_self_training_gives_no_reason_to_prefer_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path)
    write_checks(run, "extend", "skip")
    shipped = choose(run, monkeypatch, None)
    assert shipped.network == "baseline" and shipped.both_supervised
    assert shipped.sentence == (
        "the supervised baseline (too few predictions of the unlabeled scans were plausible for self-training, so both "
        "networks are supervised, and no labels were held out during training that could show which is better)"
    )


def test_skipped_self_training_ships_the_run_with_more_supervised_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path)
    checks = [TeacherCheck(1, 4, {}, "extend"), TeacherCheck(2, 4, {}, "skip", added=1200)]
    run.teacher_file.write_text(json.dumps({"checks": [check.to_json() for check in checks]}))
    shipped = choose(run, monkeypatch, None)
    assert (shipped.network, shipped.both_supervised) == ("run", True) and "1,200" in shipped.reason
    assert "1,200" in unlabeled_use(run).note


def test_implausible_predictions_ship_the_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    final = FinalCheck(30, {"a": "no foreground", "b": "scattered pieces", "c": "no foreground"}, {"b": "x"})
    shipped = choose(RunFolder(tmp_path), monkeypatch, final)
    assert shipped.network == "baseline"
    assert (
        "3 of 30" in shipped.reason
        and "2 with no foreground" in shipped.reason
        and "1 of the baseline" in shipped.reason
    )


def test_both_networks_predict_the_unlabeled_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, list[str]]] = []

    def predict(recipe: Any, store: Any, method: Any, cases: Any, device: Any) -> CasePredictions:
        weights = b"".join(tensor.numpy().tobytes() for tensor in method.student.state_dict().values())
        seen.append((weights, [case.name for case in cases]))
        bad = changed(centers=(None,) * 3)
        return CasePredictions([], {case.name: GOOD if len(seen) == 2 else bad for case in cases})

    monkeypatch.setattr(shipping, "predict_cases", predict)
    monkeypatch.setattr(shipping, "labeled_summaries", lambda store, cases: LABELED)
    trusted = TeacherCheck(1, 2, {}, "continue")
    monkeypatch.setattr(unlabeled_predictions, "check_teacher", lambda *arguments, **options: trusted)
    stages = [STAGES[0], {**STAGES[1], "check_teacher": True}]
    api.train(tiny.tiny_recipe(stages=stages, baseline=True), tiny.write_scans(tmp_path / "scans"), tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    (own, names), (other, same) = seen
    assert own != other and names == same == run.manifest()["store"]["unlabeled"]
    shipped = run.shipped()
    assert shipped is not None and shipped.network == "baseline"


def test_predict_uses_the_shipped_network(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans")
    recipe = tiny.tiny_recipe(stages=STAGES, baseline=True)
    api.train(recipe, scans, tmp_path / "run", device="cpu")
    run = RunFolder(tmp_path / "run")
    assert run.shipped() is not None and run.manifest()["shipped"]["network"] == "run"
    predicted = api.predict(run.path, scans / "imagesTs", device="cpu")
    assert predicted.folder == run.predictions and "unknown" in predicted.network
    write_checked(run.manifest_file, {key: value for key, value in run.manifest().items() if key != "shipped"})
    predicted = api.predict(run.path, scans / "imagesTs", device="cpu")
    assert predicted.folder == run.predictions and "not yet compared" in predicted.network
    run.ship(Shipped("baseline", "better"))
    predicted = api.predict(run.path, scans / "imagesTs", device="cpu")
    assert predicted.folder == run.baseline.predictions and predicted.network == "the supervised baseline (better)"
    assert api.rank(run.path, device="cpu").rows == api.rank(run.baseline.path, device="cpu").rows
    *_, last = api.export("weights", run.path, tmp_path / "network.safetensors")
    assert last == "network: the supervised baseline (better)"
    exported, network = load_exported(tmp_path / "network.safetensors"), load_network(run.baseline)
    for name, tensor in network.method.student.state_dict().items():
        assert torch.equal(exported.method.student.state_dict()[name], tensor)


@pytest.mark.slow
def test_folds_ship_the_better_network(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans")
    recipe = tiny.tiny_recipe(stages=STAGES, baseline=True)
    result = api.train_folds(recipe, scans, tmp_path / "run", folds=2, device="cpu")
    shipped = RunFolder(tmp_path / "run").shipped()
    assert shipped is not None and result.baseline is not None
    assert shipped == shipped_after_folds(result.evaluation, result.baseline)
    predicted = api.predict(tmp_path / "run", scans / "imagesTs", tmp_path / "out", device="cpu")
    assert predicted.network == shipped.sentence and len(predicted.cases) == 2


def test_a_network_that_is_not_finite_is_never_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def predict(*arguments: Any) -> CasePredictions:
        calls.append(arguments)
        if len(calls) == 1:
            raise UserError(Code.LOSS_NOT_FINITE, "a", "not finite", "train again")
        return CasePredictions([], {case.name: GOOD for case in arguments[3]})

    monkeypatch.setattr(shipping, "predict_cases", predict)
    monkeypatch.setattr(shipping, "labeled_summaries", lambda store, cases: LABELED)
    recipe = tiny.tiny_recipe(stages=[STAGES[0], {**STAGES[1], "check_teacher": True}])
    method = build_method(recipe, recipe.stages[0], 1, 2, torch.device("cpu"))
    monkeypatch.setattr(shipping, "load_network", lambda folder, device: SimpleNamespace(method=method))
    store = tiny.write_scans(tmp_path / "scans")
    prepared = prepare(read_layout(store), tmp_path / "store", recipe.data)
    final = shipping.check_networks(
        recipe, prepared, RunFolder(tmp_path), RunFolder(tmp_path).baseline, torch.device("cpu")
    )
    assert final is not None and final.prefers_other and len(final.run) == final.scans > 1


def test_an_occasional_class_that_self_training_enlarged_is_not_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The average of both networks looks usual, but not the network trained with unlabeled scans."""
    volumes = {"average": 60, "baseline": 45, "trained": 240}
    loaded: list[str] = []

    def load(folder: RunFolder, device: torch.device) -> Any:
        loaded.append("baseline" if folder.path.name == "baseline" else "average")
        return SimpleNamespace(method=method)

    def predict(*arguments: Any) -> CasePredictions:
        scan = replace(GOOD, volumes=(100, volumes[loaded[-1]]))
        return CasePredictions([], {case.name: scan for case in arguments[3]})

    recipe = tiny.tiny_recipe(stages=[STAGES[0], {**STAGES[1], "check_teacher": True}])
    method = build_method(recipe, recipe.stages[0], 1, 2, torch.device("cpu"))
    monkeypatch.setattr(shipping, "load_network", load)
    monkeypatch.setattr(shipping, "load_weights", lambda method, file: loaded.append("trained"))
    monkeypatch.setattr(shipping, "predict_cases", predict)
    labeled = [replace(GOOD, volumes=(100, volume)) for volume in (0, 100)]
    monkeypatch.setattr(shipping, "labeled_summaries", lambda store, cases: labeled)
    monkeypatch.setattr(shipping, "implausible", lambda labeled, summaries: {})
    prepared = prepare(read_layout(tiny.write_scans(tmp_path / "scans")), tmp_path / "store", recipe.data)
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    run.update_manifest({"averaged": True})
    final = shipping.check_networks(recipe, prepared, run, run.baseline, torch.device("cpu"))
    assert loaded == ["average", "baseline", "average", "trained"]
    assert final is not None and final.prefers_other and final.run == final.other == {}
    assert all(part in final.sentence("the baseline") for part in (prepared.classes[2], "4.8", "0.9"))
    volumes["trained"] = 100
    final = shipping.check_networks(recipe, prepared, run, run.baseline, torch.device("cpu"))
    assert final is not None and not final.prefers_other


def test_the_network_of_skipped_self_training_predicts_and_resumes(tmp_path: Path) -> None:
    """The student of MC-Net has several decoders, but a run without self-training has a supervised student."""
    stages = [STAGES[0], {"method": "mc-net", "steps": 2, "optimizer": {"name": "adam"}, "check_teacher": True}]
    scans = tiny.write_scans(tmp_path / "scans")
    recipe = tiny.tiny_recipe(stages=stages)
    api.train(recipe, scans, tmp_path / "run", device="cpu")
    run = RunFolder(tmp_path / "run")
    assert [check.decision for check in run.teacher_checks()] == ["extend", "skip"]
    assert len(api.predict(run.path, scans / "imagesTs", tmp_path / "out", device="cpu").cases) == 2
    again = api.train(recipe, scans, tmp_path / "run", resume=True, device="cpu")
    assert (run.teacher_checks()[-1].added, again.steps) == (2, 6)
