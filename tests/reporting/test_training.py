"""The training section of a page: charts, their caption, and the phases of a step."""

from pathlib import Path

from report_fakes import Page, write_log

from graftseg.core.run_folder import RunFolder
from graftseg.reporting.run_files import read_curves
from graftseg.reporting.training import training_section


def page_of(run: Path) -> Page:
    return Page(training_section(read_curves(RunFolder(run)), {}))


def texts(page: Page, element: str) -> list[str]:
    return [text for where, text in page.texts if where == element]


def test_a_chart_for_every_logged_value(tmp_path: Path) -> None:
    write_log(tmp_path)
    page, charts = page_of(tmp_path), ["Total loss", "Validation dice", "Learning rate", "L_pretrain", "L_in", "L_out"]
    assert [text for text in texts(page, "text") if text in charts] == charts
    assert "Stages: bcp-pretrain, steps 0 to 9; bcp, steps 10 to 19." in page.text


def test_the_caption_says_what_is_smoothed(tmp_path: Path) -> None:
    write_log(tmp_path, first=40, second=400)
    page = page_of(tmp_path)
    assert "running mean over 10 to 20 steps, depending on the stage." in page.text
    assert "mean of last 20 steps 1" in texts(page, "text")
    write_log(tmp_path, first=40, second=0)
    assert "running mean over 10 steps. The number next to a loss is the last value" in page_of(tmp_path).text
    write_log(tmp_path, first=4, second=0)
    assert "strong line" not in page_of(tmp_path).text


def test_a_jump_of_the_total_is_explained(tmp_path: Path) -> None:
    write_log(tmp_path)
    text = page_of(tmp_path).text
    assert "The total loss is L_pretrain in bcp-pretrain and L_in + L_out in bcp." in text
    assert "may jump between the stages" in text
    write_log(tmp_path, first=0)
    assert "may jump" not in page_of(tmp_path).text


def test_one_term_is_the_total_and_not_drawn_twice(tmp_path: Path) -> None:
    write_log(tmp_path, second=0)
    drawn = texts(page_of(tmp_path), "text")
    assert "Total loss" in drawn and "L_pretrain" not in drawn


def test_caption_counts_dropped_values(tmp_path: Path) -> None:
    write_log(tmp_path)
    path = tmp_path / "log.jsonl"
    path.write_text(path.read_text().replace('"total": 1.0', '"total": NaN'))
    assert "10 logged values were not finite and are left out." in page_of(tmp_path).text


def test_phases_come_in_the_order_of_a_step() -> None:
    seconds = {"update": 0.01, "batch": 0.02, "forward": 0.03, "backward": 0.04}
    page = Page(training_section(None, {"seconds_per_step": seconds}))
    assert texts(page, "li") == [
        "batch 20.0 ms (20%)",
        "forward 30.0 ms (30%)",
        "backward 40.0 ms (40%)",
        "update 10.0 ms (10%)",
    ]
    assert "One step takes 100.0 ms" in page.text
    assert "was not recorded" in Page(training_section(None, {})).text
