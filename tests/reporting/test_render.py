import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_fakes import CASES, Page, decode_uri, write_facts, write_predictions, write_run

from graftseg.core.errors import Code
from graftseg.core.files import read_json
from graftseg.core.run_folder import RunFolder
from graftseg.reporting.missing import command_path
from graftseg.reporting.rendering import run_title
from graftseg.reporting.run_page import render_report
from user_errors import user_error

SECTIONS = ["results", "cases", "comparison", "training", "mixed", "pseudo-labels", "run", "notes"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path)


def rendered(run: Path, baseline: Path | None = None) -> Page:
    return Page(render_report(run, baseline=baseline).read_text())


def test_the_report_is_written_into_the_run_or_to_a_given_path(run: Path, tmp_path: Path) -> None:
    assert render_report(run) == run / "report.html"
    out = tmp_path / "elsewhere" / "page.html"
    assert render_report(run, out) == out
    assert out.read_bytes() == (run / "report.html").read_bytes()


def test_same_run_same_bytes(run: Path) -> None:
    first = render_report(run).read_bytes()
    assert render_report(run).read_bytes() == first


def test_page_is_balanced_self_contained_and_without_script(run: Path) -> None:
    page = rendered(run)
    addresses = page.attributes("href") + page.attributes("src")
    assert addresses
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in addresses)
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "link", "iframe", "object"})
    text = (run / "report.html").read_text()
    assert "<script" not in text
    assert not re.search(r"https?://|url\(|@import", text)


def test_every_reference_inside_the_page_has_its_target(run: Path) -> None:
    page = rendered(run)
    targets = page.attributes("id")
    assert len(targets) == len(set(targets))
    links = {address[1:] for address in page.attributes("href") if address.startswith("#")}
    assert links <= set(targets)


def test_names_are_shown_and_escaped(run: Path) -> None:
    page = rendered(run)
    assert CASES[1] in page.text
    assert "<core>" in page.text


def test_no_home_folder_on_the_page(run: Path, tmp_path: Path) -> None:
    text = render_report(run).read_text()
    assert "someone" not in text
    assert "secret/data" in text
    assert str(tmp_path) not in text


@pytest.mark.usefixtures("fine_layers")
def test_all_pictures_decode(run: Path) -> None:
    pictures = [decode_uri(address) for address in rendered(run).attributes("href") if address[0] != "#"]
    shapes = {picture.shape for picture in pictures}
    assert (20, 24) in shapes  # scans are stored in gray, as small as they are
    assert (20 * 16, 24 * 16, 4) in shapes  # layers are transparent and fine
    assert len(pictures) > 20


def test_a_scan_shown_often_is_stored_once(run: Path) -> None:
    page = rendered(run)
    gray = [a for a in page.attributes("href") if a[0] != "#" and decode_uri(a).ndim == 2]
    assert len(gray) == len(set(gray))
    assert sum(address.startswith("#scan-") for address in page.attributes("href")) > len(gray)


def test_headline_names_protocol_and_checkpoint(run: Path) -> None:
    page = rendered(run)
    assert "Mean over 4 cases and then over 2 classes, standard protocol for empty masks, last checkpoint." in page.text
    assert "trained with 2 labeled and 3 unlabeled cases, seed 7." in page.text


@pytest.mark.parametrize(
    ("absent", "sentence"),
    [
        ("predictions/metrics.csv", "This run has not been evaluated."),
        ("predictions/metrics.csv", "There is no evaluated case to show."),
        ("predictions/manifest.json", "does not list this case"),
        ("log.jsonl", "No step has been logged."),
        ("snapshots", "This run has no pictures of training images."),
        ("snapshots", "This run has no snapshots of pseudo-labels"),
        ("recipe.yaml", "The run folder has no recipe.yaml."),
    ],
)
def test_missing_part_is_explained(run: Path, absent: str, sentence: str) -> None:
    assert sentence not in rendered(run).text
    (run / absent).rename(run / "hidden")
    assert sentence in rendered(run).text


def test_bare_run_folder_has_every_section(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"format": 1, "status": "running"}))
    page = rendered(run)
    sections = [attributes["id"] for tag, attributes in page.elements if tag == "section"]
    assert sections == SECTIONS
    assert "This run has not finished" in page.text


def test_without_baseline_says_how_to_add_one(run: Path) -> None:
    command = "graftseg train run/recipe.yaml --data DATA --out run --resume --baseline"
    assert ("code", command) in rendered(run).texts
    write_facts(run, method="supervised")
    assert ("code", "graftseg report run --baseline OTHER_RUN") in rendered(run).texts


def begin_baseline(run: Path, status: str) -> None:
    write_facts(run / "baseline", method="supervised", status=status)
    (run / "baseline" / "recipe.yaml").write_text("{}")


def test_untested_baseline_is_reported(run: Path) -> None:
    begin_baseline(run, "finished")
    text = rendered(run).text
    assert "The supervised baseline of this run has not been tested yet. To fill this section, run" in text
    assert "benefit of the unlabeled" not in text
    (run / "predictions" / "metrics.csv").unlink()
    page = rendered(run)
    commands = [text for element, text in page.texts if element == "code" and "test" in text]
    assert (
        commands == ["graftseg test run DATA"] and page.text.count("The command that fills this section is under") == 2
    )
    assert (
        "has not been tested yet. The command that fills this section" in page.text
        and "benefit of the unlabeled" not in page.text
    )
    begin_baseline(run, "running")
    page = rendered(run)
    assert "has not finished training." in page.text and "benefit of the unlabeled" not in page.text
    assert ("code", "graftseg train run/recipe.yaml --data DATA --out run --resume --baseline") in page.texts


def test_commands_name_the_folder_of_the_run(run: Path, tmp_path: Path) -> None:
    moved = run.rename(tmp_path / "my run")
    (moved / "predictions" / "metrics.csv").unlink()
    assert ("code", "graftseg test 'my run' DATA") in rendered(moved).texts
    begin_baseline(moved, "finished")
    assert ("code", "graftseg test 'my run/baseline' DATA") in rendered(moved / "baseline").texts
    assert command_path(RunFolder(Path("/home/someone"))) == "RUN"


def test_command_tests_an_untested_baseline(run: Path, tmp_path: Path) -> None:
    write_facts(tmp_path / "other", method="supervised")
    assert ("code", "graftseg test other DATA") in rendered(run, tmp_path / "other").texts
    begin_baseline(run, "finished")
    assert ("code", "graftseg test run DATA") in rendered(run, run / "baseline").texts


def test_comparison_with_a_baseline(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_facts(other, method="supervised", recipe="demo-2d/supervised")
    write_predictions(other, tmp_path / "labels", dict.fromkeys(CASES, 6.0))
    text = rendered(run, other).text
    assert "labeled scans only, Dice %" in text and "with unlabeled scans, Dice %" in text
    assert "Recipes: demo-2d/supervised (labeled scans only) and demo-2d/bcp (with unlabeled scans)." in text
    assert text.count("Mean Dice ") == 1 and "% with the unlabeled scans and" in text
    assert "2 / 1 / 1" in text
    assert "Baseline Dice %" in text and text.count("(baseline ") == len(CASES)
    (other / "predictions" / "metrics.csv").write_text(
        (other / "predictions" / "metrics.csv").read_text().replace("standard", "paper")
    )
    assert "Baseline Dice %" not in rendered(run, other).text  # scores under different rules are not paired


def test_verdict_is_below_the_title(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_facts(other, method="supervised", recipe="demo-2d/supervised")
    write_predictions(other, tmp_path / "labels", dict.fromkeys(CASES, 6.0))
    texts = rendered(run, other).texts
    title = texts.index(("h1", "demo-2d/bcp"))
    assert texts[title + 1][0] == "p" and texts[title + 1][1].startswith("Mean Dice ")
    assert texts[title + 1][1].endswith("fewer than 6 cases cannot show whether the unlabeled scans helped.")
    assert rendered(run).texts[title + 1][1].startswith("2 labeled and 3 unlabeled cases, 20 steps, ")


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"recipe": "planned"}, "ring and <core> by bcp"),
        ({"recipe": "planned-supervised", "method": "supervised"}, "ring and <core> by supervised"),
        ({"recipe": "my <b>liver</b>"}, "my <b>liver</b>"),
        ({"recipe": "planned", "store": {"classes": ["background", "a"]}}, "a by bcp"),
        ({"recipe": "planned", "store": {"classes": list("0abcd")}}, "a, b, c and d by bcp"),
        ({"recipe": "planned", "store": {"classes": list("0abcde")}}, "a, b, c and 2 more by bcp"),
        ({"recipe": "planned", "store": {}}, "planned"),
    ],
)
def test_the_title_says_what_was_trained(tmp_path: Path, changes: dict[str, Any], title: str) -> None:
    write_facts(tmp_path / "run", **changes)
    page = rendered(tmp_path / "run")
    assert [text for element, text in page.texts if element == "h1"] == [title]
    assert [text for element, text in page.texts if element == "title"] == [f"{title} – graftseg"]


def test_the_title_names_the_data(tmp_path: Path) -> None:
    write_facts(tmp_path / "run", recipe="planned")
    facts = read_json(tmp_path / "run" / "run.json")
    assert run_title(facts, "liver scans") == "ring and <core> in liver scans, by bcp"
    assert run_title(facts | {"recipe": "mine"}, "liver scans") == "mine"


def test_wide_tables_scroll(run: Path) -> None:
    page = rendered(run)
    regions = [attributes for _, attributes in page.elements if attributes.get("class") == "wide"]
    tables = [tag for tag, _ in page.elements if tag == "table"]
    assert len(regions) >= len(tables) > 3 and all("tabindex" in attributes for attributes in regions)
    (style,) = (text for element, text in page.texts if element == "style")
    rules = [line for line in style.splitlines() if line.startswith(".wide")]
    # a bar that is always seen, or a shade where bars are hidden
    assert any("overflow-x: auto" in line for line in rules) and any("scrollbar-thumb" in line for line in rules)
    assert any(line.count(" local") == 2 and line.count(" scroll") == 2 for line in rules)


def test_supervised_run_does_not_mention_unlabeled_cases(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_facts(run, method="supervised", store={"labeled": ["l0", "l1", "l2", "l3"], "unlabeled": []})
    page = rendered(run)
    heads = [text for element, text in page.texts if element == "p" and text.endswith("seed 7")]
    assert heads == ["4 labeled cases, 20 steps, 1 min 15 s on cpu, seed 7"]
    assert ("td", "none") in page.texts


def test_not_a_run_folder(tmp_path: Path) -> None:
    with user_error(Code.NOT_A_RUN, tmp_path):
        render_report(tmp_path)
    run = write_run(tmp_path)
    with user_error(Code.NOT_A_RUN, tmp_path):
        render_report(run, baseline=tmp_path)


def test_page_stays_small_with_large_noisy_pictures(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_facts(run)
    (run / "snapshots").mkdir()
    noise = np.random.default_rng(0).random((600, 700))
    for step in range(5):
        np.savez(run / "snapshots" / f"{step:06d}.npz", allow_pickle=False, X_in=noise + step, X_watch_0=noise)
    assert render_report(run).stat().st_size < 500_000
