"""The methods' pages hold our figures, and nothing else of them is touched."""

from pathlib import Path

import pytest
from command_line import CommandLine, contents

from graftseg import api
from graftseg.core.errors import UserError
from graftseg.experiments.method_pages import filled
from record_fakes import record

ROOT = Path(__file__).parents[2]


def test_the_methods_pages_hold_our_figures() -> None:
    pages = [page for page in (ROOT / "docs/reference/methods").glob("*.md") if page.stem != "README"]
    assert pages
    for page in pages:
        text = page.read_text("utf-8")
        assert "## Our number\n" in text
        assert text == filled(text, page.stem, ROOT / "results"), "make it anew with graftseg table all --pages"


def test_a_methods_page_is_filled(shipped: Path, tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "bcp.md").write_text("# bcp\n\n## Our number\n\nof old\n\n## Known differences\n\nnone\n")
    (pages / "README.md").write_text("# Methods\n")
    (pages / "dtc.md").write_text("## Our number\n\n## Known differences\n")
    for seed in (0, 1):
        record(tmp_path, "la-8/bcp", seed, 0.5 + 0.25 * seed)
    record(tmp_path, "la-8/supervised", 0, 0.25)
    assert api.fill_pages(pages, tmp_path) == [pages / "bcp.md", pages / "dtc.md"]
    text = (pages / "bcp.md").read_text()
    assert "| la-8/bcp | - | 0, 1 | last | 62.50 ± 17.68 |" in text
    assert "| la-8/bcp | - | 0 | 100 | 100 | 25.00 | 50.00 | +25.00 |" in text
    assert "of old" not in text and text.endswith("\n\n## Known differences\n\nnone\n")
    assert (pages / "dtc.md").read_text() == "## Our number\n\nNothing is recorded yet.\n\n## Known differences\n"


PAGE = "# a\n\n## Our number\n\nof old\n\n## Known differences\n"


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Pages of two methods, and one that is of none."""
    folder = tmp_path / "pages"
    folder.mkdir()
    for name in ("bcp", "dtc", "notes"):
        (folder / f"{name}.md").write_text(PAGE)
    return folder


def test_a_page_of_no_method_is_left_alone(shipped: Path, pages: Path, tmp_path: Path) -> None:
    (pages / "picture.md").write_bytes(b"\xff")
    assert api.fill_pages(pages, tmp_path) == [pages / "bcp.md", pages / "dtc.md"]
    assert (pages / "notes.md").read_text() == PAGE


def test_the_list_of_methods_is_made_of_the_pages(shipped: Path, pages: Path, tmp_path: Path) -> None:
    (pages / "README.md").write_bytes(b"| method | what it does now |\r\n| old | none |\r\n")
    (pages / "dtc.md").write_text(f"On unlabeled scans: shapes.\n\n{PAGE}")
    record(tmp_path, "la-4/dtc", 0, 0.5, variant="short")
    assert pages / "README.md" in api.fill_pages(pages, tmp_path)
    rows = (pages / "README.md").read_bytes().decode().split("\r\n")[2:]
    assert rows[0] == "| [`dtc`](dtc.md) | shapes | la, acdc, pancreas | - | 50.00 |"
    assert rows[1:] == ["| [`bcp`](bcp.md), `bcp-pretrain` | - | all tables | - | - |", ""]


def test_a_part_ends_with_its_page_and_needs_no_blank_line(shipped: Path, pages: Path, tmp_path: Path) -> None:
    (pages / "bcp.md").write_text("# a\n\n## Our number\nof old\n### more of old\n## Next\n")
    (pages / "dtc.md").write_text("# a\n\n## Our number  \n\nof old\n")
    (pages / "ua-mt.md").write_text("# a\n\n## Our number")
    (pages / "ss-net.md").write_text("# a\n\n## Our number\n\nof old\n\n# Appendix\n")
    assert len(api.fill_pages(pages, tmp_path)) == 4
    part = "# a\n\n## Our number\n\nNothing is recorded yet.\n"
    assert (pages / "bcp.md").read_text() == f"{part}\n## Next\n"
    assert (pages / "ss-net.md").read_text() == f"{part}\n# Appendix\n"
    assert (pages / "dtc.md").read_text() == (pages / "ua-mt.md").read_text() == part
    before = contents(pages)
    api.fill_pages(pages, tmp_path)
    assert contents(pages) == before


def test_a_page_without_the_part_is_told_and_stays_in_the_list(
    shipped: Path, pages: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (pages / "README.md").write_text("| method | what it does now |\n")
    (pages / "dtc.md").write_text("On unlabeled scans: shapes.\n\n## Our numbers\n")
    before = (pages / "dtc.md").read_text()
    assert api.fill_pages(pages, tmp_path) == [pages / "bcp.md", pages / "README.md"]
    assert "| [`dtc`](dtc.md) | shapes |" in (pages / "README.md").read_text()
    assert (pages / "dtc.md").read_text() == before
    sentence = 'left as it is, since it has no part for our figures; add a line "## Our number"'
    assert caplog.messages == [f"{pages / 'dtc.md'}: {sentence}"]


@pytest.mark.parametrize("text", ["# Methods\n", "| name | what it does now |\n| --- | --- |\n"])
def test_a_readme_without_the_list_is_told(
    shipped: Path, pages: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    (pages / "README.md").write_text(text)
    assert pages / "README.md" not in api.fill_pages(pages, tmp_path)
    assert (pages / "README.md").read_text() == text
    sentence = "left as it is, since it has no list of methods; begin one with the line | method | what it does |"
    assert caplog.messages == [f"{pages / 'README.md'}: {sentence}"]


def test_two_parts_are_refused(shipped: Path, pages: Path, tmp_path: Path) -> None:
    (pages / "dtc.md").write_text(PAGE + "\n" + PAGE)
    before = contents(pages)
    with pytest.raises(UserError, match=r"dtc\.md: has 2 parts named Our number; keep one of them"):
        api.fill_pages(pages, tmp_path)
    assert contents(pages) == before


def test_a_page_may_be_a_link(shipped: Path, pages: Path, tmp_path: Path) -> None:
    page = (pages / "dtc.md").rename(tmp_path / "elsewhere.md")
    (pages / "dtc.md").symlink_to(page)
    assert api.fill_pages(pages, tmp_path) == [pages / "bcp.md", pages / "dtc.md"]
    assert (pages / "dtc.md").is_symlink() and "Nothing is recorded yet." in page.read_text()
    page.unlink()
    with pytest.raises(UserError, match=r"dtc\.md: cannot be read \(No such file or directory\); mend the page"):
        api.fill_pages(pages, tmp_path)


def test_pages_are_written_together_or_not_at_all(shipped: Path, pages: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-8/dtc", 0, 0.5)
    (tmp_path / "la-8/dtc/seed-0/metrics.csv").write_text("")
    with pytest.raises(UserError, match=r"metrics\.csv: no line of metrics in it; record the run again"):
        api.fill_pages(pages, tmp_path)
    (pages / "dtc.md").write_bytes(b"\xff## Our number")
    with pytest.raises(UserError, match=r"dtc\.md: not text in UTF-8; save the page as UTF-8"):
        api.fill_pages(pages, tmp_path)
    assert (pages / "bcp.md").read_text() == PAGE


def test_a_page_keeps_its_line_ends(shipped: Path, pages: Path, tmp_path: Path) -> None:
    record(tmp_path, "la-8/bcp", 0, 0.5)
    (pages / "bcp.md").write_bytes(PAGE.replace("\n", "\r\n").encode())
    api.fill_pages(pages, tmp_path)
    content = (pages / "bcp.md").read_bytes()
    assert b"| la-8/bcp | - | 0 |" in content and content.count(b"\n") == content.count(b"\r\n") > 6


def test_a_recorded_method_without_a_page_is_told(shipped: Path, pages: Path, tmp_path: Path, cli: CommandLine) -> None:
    results = tmp_path / "results"
    for name in ("la-8/bcp", "la-8/dtc"):
        record(results, name, 0, 0.5)
    (pages / "dtc.md").unlink()
    code, out, _ = cli("table", "la", "--results", results, "--pages", pages)
    assert (code, out.splitlines()) == (
        0,
        [f"{pages / 'bcp.md'}", f"dtc: recorded, and no page in {pages} has a part Our number for it"],
    )
    before = (pages / "bcp.md").read_bytes()
    record(results, "la-8/bcp", 1, 0.5)
    words = ("table", "la", "--results", results, "--pages", pages, "--markdown", tmp_path)
    assert "exists and is not a plain file" in cli.fails(*words)
    assert "lies among the methods' pages" in cli.fails(*words[:-1], pages / "bcp.md")
    assert (pages / "bcp.md").read_bytes() == before


def test_nothing_is_written_among_the_records(
    shipped: Path, pages: Path, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results"
    record(results, "la-8/bcp", 0, 0.5)
    pages.rename(results / "pages")
    (tmp_path / "way").symlink_to(results)
    monkeypatch.chdir(tmp_path)
    before = contents(results)
    told = "lies among the records in results; name another {}, outside of that folder"
    for file in ("results/la-8/bcp/seed-0/run.json", "way/la.md", "results/new/la.md"):
        assert told.format("--markdown") in cli.fails("table", "la", "--markdown", file)
    assert told.format("--pages") in cli.fails("table", "la", "--pages", "results/pages", "--markdown", "la.md")
    assert contents(results) == before and not Path("la.md").exists()
    cli.works("table", "la", "--markdown", "results.md")


def test_a_folder_without_such_pages_is_named(tmp_path: Path) -> None:
    for folder, finding in ((tmp_path, "holds no page"), (tmp_path / "none", "not a folder")):
        with pytest.raises(UserError, match=finding):
            api.fill_pages(folder, tmp_path)
