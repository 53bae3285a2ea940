"""Records: contents, the older form, damage, targets, variants and siblings."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from command_line import contents
from hypothesis import given
from hypothesis import strategies as st

from graftseg import api
from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json
from graftseg.core.reading import sha256_of
from graftseg.data.store import Store
from graftseg.evaluation.scores import read_csv
from graftseg.evaluation.table_metrics import mean_metrics
from graftseg.experiments.records import (
    Record,
    is_record,
    read_record,
    read_records,
    record_path,
    thinned,
    without_paths,
    write_record,
)
from graftseg.recipes.recipe import load_recipe
from record_fakes import record, rewrite, row
from user_errors import user_error

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def tested(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tested run, which tests do not change."""
    run = tmp_path_factory.mktemp("runs") / "run"
    recipe = tiny.tiny_recipe(name="tiny/bcp", seed=3)
    api.train(recipe, store.path, run, device="cpu")
    api.predict(run, store.path, device="cpu")
    api.evaluate(run / "predictions", store.path)
    return run


@pytest.fixture
def run(tested: Path, tmp_path: Path) -> Path:
    """A copy of the tested run."""
    return Path(shutil.copytree(tested, tmp_path / "run"))


def rows_of(found: Record) -> str:
    """Return the rows of a record as text, in which missing values are equal."""
    return repr(found.evaluation.rows)


def change(folder: Path, **changes: Any) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps(read_json(path) | changes))


def write_older_record(run: Path, folder: Path) -> None:
    """Write a record in the form of earlier versions: settings, facts, log and scores in separate files."""
    folder.mkdir(parents=True)
    for name in ("recipe.yaml", "log.jsonl"):
        shutil.copy(run / name, folder)
    shutil.copy(run / "predictions" / "metrics.csv", folder)
    about = json.loads((run / "predictions" / "metrics.json").read_text())
    weights = read_json(run / "run.json")["weights"]
    (folder / "metrics.json").write_text(json.dumps(about | {"checkpoint": "last", "weights": weights}))
    facts = read_json(run / "run.json") | {"variant": "", "changes": []}
    (folder / "run.json").write_text(json.dumps(facts))


def test_a_record_contains_recipe_facts_scores_and_log(tested: Path, store: Store, tmp_path: Path) -> None:
    folder = api.record(tested, results=tmp_path)
    assert folder == tmp_path / "tiny" / "bcp" / "seed-3"
    assert {path.name for path in folder.iterdir()} == {"record.json", "recipe.yaml"}
    found = read_record(folder)
    assert found.settings == load_recipe(tested / "recipe.yaml")
    assert rows_of(found) == repr(read_csv(tested / "predictions" / "metrics.csv").rows)
    assert {"device", "hardware", "versions", "wall_seconds", "seed", "checkpoint"} <= found.facts.keys()
    assert "path" not in found.facts["store"] and found.facts["store"]["labeled"]
    assert (found.recipe, found.seed, found.variant, found.reported.checkpoint) == ("tiny/bcp", 3, "", "last")
    assert found.log[-1]["global_step"] == found.steps
    text = (folder / "record.json").read_text()
    assert str(store.path) not in text and str(tested.parent) not in text
    cases = [line for line in text.splitlines() if line.startswith('      ["test_')]
    assert len(cases) == len(found.evaluation.rows), "each row of scores has its own line"


def test_recording_twice_changes_nothing(tested: Path, tmp_path: Path) -> None:
    folder = api.record(tested, results=tmp_path)
    before = contents(folder)
    assert api.record(tested, folder) == folder
    assert contents(folder) == before


def test_an_older_record_is_read_and_replaced(tested: Path, tmp_path: Path) -> None:
    folder = tmp_path / "older" / "tiny" / "bcp" / "seed-3"
    write_older_record(tested, folder)
    new = read_record(api.record(tested, results=tmp_path / "new"))
    older = read_record(folder)
    assert is_record(folder) and [found.folder for found in read_records(tmp_path / "older", "tiny/bcp")] == [folder]
    assert (rows_of(older), older.settings, older.log) == (rows_of(new), new.settings, new.log)
    assert (older.recipe, older.seed, older.variant, older.steps) == (new.recipe, new.seed, new.variant, new.steps)
    assert api.compare(folder, new.folder)[0].first.weights_hash == new.facts["weights"]
    assert "Dice" in api.report(folder, tmp_path / "page.html").read_text()
    assert api.info(folder)["seed"] == 3
    assert api.record(tested, folder) == folder
    assert contents(folder) == contents(new.folder)


def test_a_damaged_record_is_one_error_and_is_recreated(tested: Path, tmp_path: Path) -> None:
    folder = api.record(tested, results=tmp_path)
    before = contents(folder)
    whole = (folder / "record.json").read_text()
    edited = whole.replace('"seed": 3', '"seed": 4')
    for text in ("", "[]", "{", whole[:-20], edited):
        (folder / "record.json").write_text(text)
        with user_error(Code.DAMAGED_FILE, folder / "record.json", "graftseg record"):
            read_records(tmp_path, "tiny/bcp")
        api.record(tested, results=tmp_path)
        assert contents(folder) == before
    (folder / "recipe.yaml").write_text("name: other\n")
    with user_error(Code.DAMAGED_FILE, folder, "graftseg record"):
        api.compare(folder, folder.parent)


def test_a_folder_without_a_record(tmp_path: Path) -> None:
    (tmp_path / "tiny" / "bcp" / "seed-1").mkdir(parents=True)
    assert read_records(tmp_path, "tiny/bcp") == []
    with user_error(Code.RECORD_INVALID, "seed-1"):
        read_record(tmp_path / "tiny" / "bcp" / "seed-1")


def test_a_record_of_another_recipe_is_rejected(tmp_path: Path) -> None:
    folder = record(tmp_path, "tiny/bcp", 0, 0.5)
    rewrite(folder, facts={"recipe": "tiny/other"})
    with user_error(Code.RECORD_INVALID, folder, "tiny/other"):
        read_records(tmp_path, "tiny/bcp")


def test_shipped_records_are_complete_and_compact() -> None:
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    folders = {path.parent for path in files if path.name == "record.json"}
    assert len(files) <= 250 and len(folders) > 90
    failures = []
    for folder in sorted(folders):
        found = read_record(folder)
        if len(found.log) > 200 or not found.evaluation.rows or "path" in found.facts["store"]:
            failures.append(str(folder))
        elif found.variant and not folder.name.endswith(f"-{found.variant}"):
            failures.append(f"{folder}: variant {found.variant}")
    assert not failures


def test_a_report_is_made_from_a_record(tmp_path: Path) -> None:
    run, baseline = RESULTS / "demo-2d" / "bcp", RESULTS / "demo-2d" / "supervised"
    page = api.report(run, tmp_path / "page.html", baseline=baseline).read_text()
    assert "crescent" in page and "test_000" in page


def test_a_variant_has_its_own_folder(tested: Path, tmp_path: Path) -> None:
    assert api.record(tested, results=tmp_path, variant="exact") == tmp_path / "tiny" / "bcp" / "seed-3-exact"
    folder = tmp_path / "tiny" / "bcp" / "seed-3-other.1"
    assert api.record(tested, folder) == folder
    assert [found.variant for found in read_records(tmp_path, "tiny/bcp")] == ["exact", "other.1"]


def test_folders_that_no_table_reads_are_rejected(tested: Path, tmp_path: Path) -> None:
    for out, variant, where in (
        ("bcp/seed-3", "", "bcp/seed-3"),
        ("tiny/bcp/seed-4", "", "seed-4"),
        ("tiny/bcp/seed-3", "exact", "seed-3"),
        ("tiny/bcp", "", "tiny/bcp"),
        ("", "two words", "--variant two words"),
        ("", "../x", "--variant ../x"),
        ("", "v" * 300, "--variant vvv"),
    ):
        with user_error(Code.OPTION_INVALID, where):
            api.record(tested, tmp_path / out if out else None, variant=variant, results=tmp_path)
    for name in ("../x", "/x", "a\0b", "a\ud800"):
        with user_error(Code.RECORD_INVALID, "recipe"):
            record_path(tiny.tiny_recipe(name=name))
    assert not list(tmp_path.iterdir())


def test_another_run_does_not_replace_a_record(run: Path, tmp_path: Path) -> None:
    folder = api.record(run, results=tmp_path)
    rewrite(folder, facts={"weights": "0" * 64})
    with user_error(Code.TARGET_EXISTS, folder, "another run"):
        api.record(run, results=tmp_path)


def test_a_record_never_overwrites_a_run(run: Path, tmp_path: Path) -> None:
    placed = tmp_path / "runs" / "tiny" / "bcp" / "seed-3"
    placed.parent.mkdir(parents=True)
    run.rename(placed)
    shutil.copytree(placed, tmp_path / "copy" / "tiny" / "bcp" / "seed-3")
    before = contents(tmp_path)
    targets: tuple[dict[str, Any], ...] = (
        {"out": placed},
        {"results": tmp_path / "runs"},
        {"results": tmp_path / "copy" / ".." / "runs"},
        {"results": placed},
        {"out": placed / "tiny" / "bcp" / "seed-3"},
        {"results": tmp_path / "copy"},
    )
    for target in targets:
        with user_error(Code.UNSAFE_TARGET, "seed-3"):
            api.record(placed, **target)
    assert contents(tmp_path) == before


def test_a_file_in_place_of_a_folder_is_rejected(run: Path, tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with user_error(Code.NOT_A_FOLDER, tmp_path / "results"):
        api.record(run, results=tmp_path / "results")
    (tmp_path / "tiny" / "bcp").mkdir(parents=True)
    (tmp_path / "tiny" / "bcp" / "seed-3").write_text("")
    with user_error(Code.NOT_A_FOLDER, "seed-3"):
        api.record(run, results=tmp_path)


def test_runs_that_cannot_be_recorded_yet(run: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    change(run, status="stopped")
    with user_error(Code.RUN_UNFINISHED, run):
        api.record(run, results=results)
    change(run, status="finished", weights="0" * 64)
    with user_error(Code.PREDICTIONS_MISMATCH, run / "predictions", "weights"):
        api.record(run, results=results)
    (run / "predictions" / "metrics.csv").unlink()
    with user_error(Code.NOT_TESTED, run / "predictions"):
        api.record(run, results=results)
    assert not results.exists()


def test_a_damaged_run_leaves_no_partial_record(run: Path, tmp_path: Path) -> None:
    log = (run / "log.jsonl").read_text()
    (run / "log.jsonl").write_text("[]\n")
    with user_error(Code.DAMAGED_FILE, run / "log.jsonl"):
        api.record(run, results=tmp_path / "results")
    (run / "log.jsonl").write_text(log)
    change(run, store={})
    with user_error(Code.DAMAGED_FILE, run / "run.json"):
        api.record(run, results=tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_label_maps_that_failed_are_not_recorded(run: Path, tmp_path: Path) -> None:
    manifest = run / "predictions" / "manifest.json"
    manifest.write_text(json.dumps(read_json(manifest) | {"failures": {"x": "unreadable"}}))
    with user_error(Code.PREDICTIONS_MISMATCH, run / "predictions", "missing"):
        api.record(run, results=tmp_path / "results")


def test_the_best_checkpoint_is_recorded_if_it_was_tested(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "predictions", run / "predictions-best")
    manifest = run / "predictions-best" / "manifest.json"
    words = "best on test, step 6 (oracle)"
    manifest.write_text(json.dumps(read_json(manifest) | {"checkpoint": words}))
    change(run, best={"on": "test", "step": 6, "dice": 0.5, "sha256": sha256_of(run / "model.safetensors")})
    found = read_record(api.record(run, results=tmp_path / "results"))
    assert found.best_checkpoint is not None and found.best_checkpoint.checkpoint == words
    assert mean_metrics(found.evaluation) == mean_metrics(read_csv(run / "predictions" / "metrics.csv"))
    shutil.rmtree(run / "predictions-best")
    found = read_record(api.record(run, results=tmp_path / "results"))
    assert found.best is None and found.best_checkpoint is not None
    assert found.best_checkpoint.checkpoint == "best on test, step 6"
    assert found.best_checkpoint.evaluation == found.evaluation


def test_a_changed_shipped_recipe_needs_a_variant(run: Path, tmp_path: Path) -> None:
    name = "demo-2d/bcp"
    (run / "recipe.yaml").write_text(load_recipe(name, ["seed=3", "network.width=4"]).to_yaml())
    with user_error(Code.VARIANT_NEEDED, run / "recipe.yaml", "network.width"):
        api.record(run, results=tmp_path / "results")
    found = read_record(api.record(run, results=tmp_path / "results", variant="narrow"))
    assert (found.variant, found.facts["changes"]) == ("narrow", ["network.width"])
    same = load_recipe(name, ["seed=3", "selection.every=5", "selection.oracle=true", "loop.log_every=7"])
    (run / "recipe.yaml").write_text(same.to_yaml())
    assert read_record(api.record(run, results=tmp_path / "results")).facts["changes"] == []


def test_changed_inference_needs_a_variant(run: Path, tmp_path: Path) -> None:
    (run / "recipe.yaml").write_text(load_recipe("demo-2d/bcp", ["seed=3"]).to_yaml())
    manifest = run / "predictions" / "manifest.json"
    content = read_json(manifest)
    content["inference"] |= {"largest_component": True, "windows_per_forward": 9}
    manifest.write_text(json.dumps(content))
    with user_error(Code.VARIANT_NEEDED, run / "recipe.yaml", "inference.largest_component"):
        api.record(run, results=tmp_path / "results")


def test_seeds_of_one_variant_must_match(run: Path, tmp_path: Path) -> None:
    folder = api.record(run, results=tmp_path)
    other = Path(shutil.copytree(folder, folder.with_name("seed-4")))
    first = read_record(folder)
    text = (other / "recipe.yaml").read_text()
    facts = first.facts | {"seed": 4}
    scans = [replace(one, case=one.case.replace("000", "999")) for one in first.evaluation.rows]
    cases = replace(first.reported, evaluation=replace(first.evaluation, rows=tuple(scans)))
    store = {"store": facts["store"] | {"identity": "f00"}}
    for sibling, recipe, code, keyword in (
        (replace(first, folder=other, facts=facts), text.replace("width: 2", "width: 4"), "variant-needed", "width"),
        (replace(first, folder=other, facts=facts | store), text, "variant-needed", "store"),
        (replace(first, folder=other, facts=facts, reported=cases), text, "not-comparable", "test_000"),
    ):
        write_record(sibling, recipe)
        with user_error(Code(code), "", keyword):
            api.record(run, results=tmp_path)
    (other / "record.json").write_text("")
    assert api.record(run, results=tmp_path) == folder


def test_logs_are_thinned_to_at_most_200_lines() -> None:
    lines: list[dict[str, Any]] = [{"global_step": step, "total": 1.0} for step in range(1, 121)]
    lines.insert(70, {"global_step": 70, "validation": {"dice": 0.5}})
    kept = [(line["global_step"], "validation" in line) for line in thinned(lines)]
    assert kept == [(50, False), (70, True), (100, False), (120, False)]
    assert thinned([]) == []
    for steps, scores in ((30_000, 30), (9_951, 0), (10_000, 0), (1_000, 500), (100_000, 199)):
        lines = [{"global_step": step, "total": 1.0} for step in range(1, steps + 1)]
        lines += [{"global_step": step, "validation": {}} for step in range(scores)]
        kept_lines = thinned(lines)
        assert 10 < len(kept_lines) <= 200, (steps, scores)
        assert lines[steps - 1] in kept_lines and thinned(kept_lines) == kept_lines


PLAIN = st.recursive(
    st.none() | st.integers() | st.sampled_from(["last", "cuda:0", "/home/me/x", "~/x", "../x", "la-8/bcp"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abcd"), inner),
    max_leaves=8,
)


@given(PLAIN.filter(lambda value: not isinstance(value, str)))
def test_paths_of_this_machine_are_removed(content: Any) -> None:
    left = without_paths(content)
    text = json.dumps(left)
    assert not any(path in text for path in ("/home/me/x", "~/x", "../x"))
    for word in ("last", "cuda:0", "la-8/bcp"):
        assert text.count(word) == json.dumps(content).count(word)


def test_missing_values_survive_a_record(tmp_path: Path) -> None:
    folder = record(tmp_path, "tiny/bcp", 0, 0.1 + 0.2)
    rewrite(folder, [row(0.1 + 0.2, volume=float("nan"))])
    (found,) = read_record(folder).evaluation.rows
    assert found.dice == 0.1 + 0.2 and found.volume_reference_ml != found.volume_reference_ml


def test_an_unreadable_record_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = record(tmp_path, "tiny/bcp", 0, 0.5)

    def denied(path: Path, *_: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(UserError) as caught:
        read_record(folder)
    assert caught.value.code != Code.DAMAGED_FILE
