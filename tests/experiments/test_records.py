"""A record holds what a reader needs of a run and nothing of the data, the weights or the machine."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml
from command_line import contents
from hypothesis import given
from hypothesis import strategies as st

from graftseg import api
from graftseg.core.errors import UserError
from graftseg.core.files import sha256_of
from graftseg.data.store import Store
from graftseg.evaluation.figures import figures_of
from graftseg.evaluation.scores import read_csv
from graftseg.experiments.records import place, read_records, thinned, without_paths
from graftseg.recipes.recipe import load_recipe


@pytest.fixture(scope="module")
def tested(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    recipe = tiny.tiny_recipe(name="tiny/bcp", seed=3)
    api.train(recipe, store.path, run, device="cpu")
    api.predict(run, store.path, device="cpu")
    api.evaluate(run / "predictions", store.path)
    return run


@pytest.fixture
def run(tested: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(tested, tmp_path / "run"))


def facts(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return content


def change(folder: Path, **changes: Any) -> None:
    (folder / "run.json").write_text(json.dumps(facts(folder) | changes))


def test_a_record_has_its_place_and_its_files(tested: Path, store: Store, tmp_path: Path) -> None:
    folder = api.record(tested, results=tmp_path)
    assert folder == tmp_path / "tiny" / "bcp" / "seed-3"
    names = {"log.jsonl", "metrics.csv", "metrics.json", "recipe.yaml", "run.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert load_recipe(folder / "recipe.yaml") == load_recipe(tested / "recipe.yaml")
    assert (folder / "metrics.csv").read_bytes() == (tested / "predictions" / "metrics.csv").read_bytes()
    said = facts(folder)
    assert {"device", "hardware", "versions", "wall_seconds", "seed", "checkpoint"} <= said.keys()
    assert said["store"]["labeled"] == facts(tested)["store"]["labeled"]
    everything = "".join(path.read_text() for path in folder.iterdir())
    assert str(store.path) not in everything and str(tested.parent) not in everything
    about = json.loads((folder / "metrics.json").read_text())
    assert (about["protocol"], about["checkpoint"], about["cases"]) == ("standard", "last", 2)


def test_recording_twice_changes_nothing(tested: Path, tmp_path: Path) -> None:
    folder = api.record(tested, results=tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert api.record(tested, folder) == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_variant_has_its_own_place(tested: Path, tmp_path: Path) -> None:
    assert api.record(tested, results=tmp_path, variant="exact") == tmp_path / "tiny" / "bcp" / "seed-3-exact"
    given_out = tmp_path / "tiny" / "bcp" / "seed-3-other.1"
    assert api.record(tested, given_out) == given_out
    assert [record.variant for record in read_records(tmp_path, "tiny/bcp")] == ["exact", "other.1"]


@pytest.mark.parametrize(
    ("out", "variant", "sentence"),
    [
        ("bcp/seed-3", "", "not the place of this run, which is tiny/bcp/seed-3; name RESULTS/tiny/bcp/seed-3"),
        ("tiny/bcp/seed-4", "", "not the place of this run"),
        ("tiny/bcp/seed-3", "exact", "not the place of this run, which is tiny/bcp/seed-3-exact"),
        ("tiny/bcp", "", "not the place of this run"),
        ("", "two words", "--variant two words: not one plain word; use letters"),
        ("", "../x", "not one plain word"),
    ],
)
def test_places_where_no_table_would_look(tested: Path, tmp_path: Path, out: str, variant: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        api.record(tested, tmp_path / out if out else None, variant=variant, results=tmp_path)
    assert sentence in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_names_that_lead_elsewhere_are_refused() -> None:
    for name in ("../x", "/x", "a\0b", "a\ud800"):
        with pytest.raises(UserError, match="its name is no place for a record"):
            place(tiny.tiny_recipe(name=name))


def test_another_run_does_not_replace_a_record(run: Path, tmp_path: Path) -> None:
    folder = api.record(run, results=tmp_path)
    said = facts(folder) | {"weights": "0" * 64}
    (folder / "run.json").write_text(json.dumps(said))
    with pytest.raises(UserError, match="holds the record of another run; remove it or name a --variant"):
        api.record(run, results=tmp_path)
    (folder / "run.json").write_text("[]")
    about = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps(about | {"weights": "0" * 64}))
    for _ in range(2):
        with pytest.raises(UserError, match="holds the record of another run"):
            api.record(run, results=tmp_path)
        (folder / "run.json").unlink(missing_ok=True)


def test_a_record_that_lost_its_facts_is_replaced_by_that_of_its_run(tested: Path, tmp_path: Path) -> None:
    folder = api.record(tested, results=tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "run.json").unlink()
    (folder / "notes.txt").write_text("precious")
    with pytest.raises(UserError, match=r"seed-3/run\.json: missing from the record; record the run again, or move"):
        read_records(tmp_path, "tiny/bcp")
    api.record(tested, results=tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before | {"notes.txt": b"precious"}


@pytest.mark.parametrize("name", ["run.json", "metrics.json", "metrics.csv"])
@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": "', b"\xff"])
def test_a_damaged_record_is_replaced_by_that_of_its_run(
    tested: Path, tmp_path: Path, name: str, content: bytes
) -> None:
    folder = api.record(tested, results=tmp_path)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=rf"seed-3/{name}: .*; record the run again"):
        read_records(tmp_path, "tiny/bcp")
    api.record(tested, results=tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_record_does_not_lie_in_its_run(run: Path) -> None:
    before = contents(run)
    ways: tuple[dict[str, Any], ...] = ({"results": run}, {"out": run / "tiny" / "bcp" / "seed-3"})
    for settings in ways:
        with pytest.raises(UserError, match=f"seed-3: the record would lie in the folder of its run, {run}; name ano"):
            api.record(run, **settings)
    assert contents(run) == before


def test_a_record_is_not_written_over_its_run(run: Path, tmp_path: Path) -> None:
    placed = tmp_path / "runs" / "tiny" / "bcp" / "seed-3"
    placed.parent.mkdir(parents=True)
    run.rename(placed)
    shutil.copytree(placed, tmp_path / "copy" / "tiny" / "bcp" / "seed-3")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    ways: tuple[dict[str, Any], ...] = (
        {"out": placed},
        {"results": tmp_path / "runs"},
        {"results": tmp_path / "copy" / ".." / "runs"},
    )
    for settings in ways:
        with pytest.raises(UserError, match="the record would be written over the run itself; name another folder"):
            api.record(placed, **settings)
    with pytest.raises(UserError, match="copy/tiny/bcp/seed-3: holds a run, over which its record would be written"):
        api.record(placed, results=tmp_path / "copy")
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_a_file_in_the_place_of_a_record_is_named(run: Path, tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(UserError, match=r"/results: not a folder; name another folder as --results or --out"):
        api.record(run, results=tmp_path / "results")
    (tmp_path / "tiny" / "bcp").mkdir(parents=True)
    (tmp_path / "tiny" / "bcp" / "seed-3").write_text("")
    with pytest.raises(UserError, match=r"/tiny/bcp/seed-3: not a folder"):
        api.record(run, results=tmp_path)


def test_a_damaged_log_leaves_no_half_of_a_record(run: Path, tmp_path: Path) -> None:
    (run / "log.jsonl").write_text("[]\n")
    with pytest.raises(UserError, match=r"log\.jsonl: line 1 of 1 is not about a step"):
        api.record(run, results=tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_a_run_without_a_store_is_damaged(run: Path, tmp_path: Path) -> None:
    known = facts(run)
    for store in (None, {}, {"identity": 3}):
        left = {key: value for key, value in known.items() if key != "store"} | ({"store": store} if store else {})
        (run / "run.json").write_text(json.dumps(left))
        with pytest.raises(UserError, match=r"run\.json: damaged at store.*; restore the file or train anew"):
            api.record(run, results=tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_runs_that_are_not_ready(run: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    change(run, status="stopped")
    with pytest.raises(UserError, match="the run has not ended; let the training end"):
        api.record(run, results=results)
    change(run, status="finished", weights="0" * 64)
    with pytest.raises(UserError, match="the label maps are not those of the run's network"):
        api.record(run, results=results)
    (run / "predictions" / "metrics.csv").unlink()
    with pytest.raises(UserError, match="the run has not been tested; test it with graftseg test RUN STORE"):
        api.record(run, results=results)
    assert not results.exists()


def test_label_maps_that_failed_are_not_recorded(run: Path, tmp_path: Path) -> None:
    manifest = run / "predictions" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"failures": {"x": "unreadable"}}))
    with pytest.raises(UserError, match="some cases have no label map"):
        api.record(run, results=tmp_path / "results")


def test_the_best_checkpoint_is_recorded_where_it_was_tested(run: Path, tmp_path: Path) -> None:
    weights = sha256_of(run / "model.safetensors")
    shutil.copytree(run / "predictions", run / "predictions-best")
    manifest = run / "predictions-best" / "manifest.json"
    words = "best on test, step 6 (oracle)"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"checkpoint": words}))
    change(run, best={"on": "test", "step": 6, "dice": 0.5, "sha256": weights})
    folder = api.record(run, results=tmp_path / "results")
    assert (folder / "metrics-best.csv").is_file()
    (record,) = read_records(tmp_path / "results", "tiny/bcp")
    assert record.best is not None and record.best.checkpoint == words
    assert (record.seed, record.variant, record.reported.checkpoint) == (3, "", "last")
    assert figures_of(record.reported.evaluation) == figures_of(read_csv(run / "predictions" / "metrics.csv"))


def test_a_reported_checkpoint_that_is_the_best_needs_no_second_test(run: Path, tmp_path: Path) -> None:
    change(run, best={"on": "test", "step": 6, "dice": 0.5, "sha256": sha256_of(run / "model.safetensors")})
    api.record(run, results=tmp_path / "results")
    (record,) = read_records(tmp_path / "results", "tiny/bcp")
    assert record.best is not None and record.best.checkpoint == "best on test, step 6"
    assert record.best.evaluation == record.reported.evaluation


def test_a_changed_shipped_recipe_needs_a_variant(run: Path, tmp_path: Path) -> None:
    name = "demo-2d/bcp"
    (run / "recipe.yaml").write_text(load_recipe(name, ["seed=3", "network.width=4"]).to_yaml())
    with pytest.raises(UserError, match=r"differs from the shipped recipe demo-2d/bcp \(network\.width\); name the"):
        api.record(run, results=tmp_path / "results")
    folder = api.record(run, results=tmp_path / "results", variant="narrow")
    assert (facts(folder)["variant"], facts(folder)["changes"]) == ("narrow", ["network.width"])
    same = load_recipe(name, ["seed=3", "selection.every=5", "selection.oracle=true", "loop.log_every=7"])
    (run / "recipe.yaml").write_text(same.to_yaml())
    assert facts(api.record(run, results=tmp_path / "results"))["changes"] == []


def test_a_network_that_was_used_otherwise_needs_a_variant(run: Path, tmp_path: Path) -> None:
    (run / "recipe.yaml").write_text(load_recipe("demo-2d/bcp", ["seed=3"]).to_yaml())
    manifest = run / "predictions" / "manifest.json"
    said = json.loads(manifest.read_text())
    said["inference"] |= {"largest_component": True, "windows_per_forward": 9}
    manifest.write_text(json.dumps(said))
    with pytest.raises(UserError, match=r"shipped recipe demo-2d/bcp \(inference\.largest_component\)"):
        api.record(run, results=tmp_path / "results")


def test_logs_are_thinned() -> None:
    lines: list[dict[str, Any]] = [{"global_step": step, "total": 1.0} for step in range(1, 121)]
    lines.insert(70, {"global_step": 70, "validation": {"dice": 0.5}})
    kept = [(line["global_step"], "validation" in line) for line in thinned(lines)]
    assert kept == [(50, False), (70, True), (100, False), (120, False)]
    assert thinned([]) == []


PLAIN = st.recursive(
    st.none() | st.integers() | st.sampled_from(["last", "cuda:0", "/home/me/x", "~/x", "../x", "la-8/bcp"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abcd"), inner),
    max_leaves=8,
)


@given(PLAIN.filter(lambda value: not isinstance(value, str)))
def test_no_path_of_this_machine_is_left(content: Any) -> None:
    left = without_paths(content)
    text = json.dumps(left)
    assert not any(path in text for path in ("/home/me/x", "~/x", "../x"))
    for word in ("last", "cuda:0", "la-8/bcp"):
        assert text.count(word) == json.dumps(content).count(word)


def test_seeds_of_one_variant_are_trained_alike(run: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    folder = api.record(run, results=results)
    other = shutil.copytree(folder, folder.with_name("seed-4"))
    text = (other / "recipe.yaml").read_text()
    tree = yaml.safe_load(text)
    tree["seed"], tree["stages"][0]["steps"] = 4, tree["stages"][0]["steps"] + 1
    (other / "recipe.yaml").write_text(yaml.safe_dump(tree))
    shutil.rmtree(folder)
    with pytest.raises(UserError, match=r"seed-4 has the same variant and other settings \(stages.0.steps\); name ano"):
        api.record(run, results=results)
    assert not folder.exists()


def test_seeds_that_were_scored_on_other_scans_are_not_recorded_beside_one_another(run: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    folder = api.record(run, results=results)
    other = folder.rename(folder.parent / "seed-4")
    for name in ("run.json", "recipe.yaml"):
        tree = yaml.safe_load((other / name).read_text()) | {"seed": 4}
        (other / name).write_text(json.dumps(tree))
    table = other / "metrics.csv"
    whole = table.read_text()
    table.write_text(whole.replace("test_000", "test_999"))
    with pytest.raises(
        UserError, match=r"run: not scored on the same cases as .*seed-4 \(2 in one .*under another --var"
    ):
        api.record(run, results=results)
    assert not folder.exists()
    table.write_text("")
    assert api.record(run, results=results) == folder
    table.write_text(whole)
    assert api.record(run, results=results) == folder


def test_a_record_without_a_best_checkpoint_keeps_no_scores_of_one(run: Path, tmp_path: Path) -> None:
    folder = api.record(run, results=tmp_path / "results")
    for name in ("metrics-best.csv", "metrics-best.json"):
        shutil.copy(folder / name.replace("-best", ""), folder / name)
    api.record(run, results=tmp_path / "results")
    assert not list(folder.glob("metrics-best*"))


def test_a_record_names_no_place(run: Path, tmp_path: Path) -> None:
    known = facts(run)
    change(run, store=known["store"] | {"path": "stores/mine"})
    assert "path" not in facts(api.record(run, results=tmp_path / "results"))["store"]
