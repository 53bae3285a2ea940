import pytest
from report_fakes import Page

from graftseg.reporting.markup import Html, join, looks_like_path, missing, section, short_path, table, tag, typeset


def test_text_and_attributes_are_escaped_and_markup_is_not() -> None:
    html = tag("p", "a<b&c", Html("<i></i>"), class_='x"y', aria_label="z", hidden=None)
    assert html == '<p class="x&quot;y" aria-label="z">a&lt;b&amp;c<i></i></p>'


def test_joined_markup_stays_markup() -> None:
    assert join(["<", tag("b", "x")]) == "&lt;<b>x</b>"
    assert isinstance(join([]), Html)


def test_void_elements_are_not_closed() -> None:
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_missing_names_the_command() -> None:
    assert Page(missing("Nothing.", "graftseg x")).texts == [
        ("p", "Nothing. To fill this part: "),
        ("code", "graftseg x"),
    ]
    assert missing("Nothing.", "x", "or y") == (
        '<p class="missing">Nothing. To fill this part: <code>x</code>, or y.</p>'
    )
    assert missing("Nothing.") == '<p class="missing">Nothing.</p>'


def test_section_can_be_pointed_to() -> None:
    assert section("here", "Title <1>", "text") == '<section id="here"><h2>Title &lt;1&gt;</h2>text</section>'


def test_table_names_its_rows() -> None:
    page = Page(table(["Case", "Dice"], [["<a>", "1"], ["b", "2"]], caption="All"))
    assert page.texts == [
        ("figcaption", "All"),
        ("th", "Case"),
        ("th", "Dice"),
        ("th", "<a>"),
        ("td", "1"),
        ("th", "b"),
        ("td", "2"),
    ]
    assert page.attributes("scope") == ["col", "col", "row", "row"]


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/home/someone/a/b", "a/b"),
        ("/b", "b"),
        ("a", "a"),
        ("", ""),
        ("C:\\Users\\someone\\a\\b", "a/b"),
        ("~/data", "~/data"),
    ],
)
def test_short_path_keeps_two_parts(path: str, short: str) -> None:
    assert short_path(path) == short


@pytest.mark.parametrize("text", ["/home/x/y", "~/data", "C:\\data", "\\\\server\\share"])
def test_paths_are_recognised(text: str) -> None:
    assert looks_like_path(text)


@pytest.mark.parametrize("text", ["bcp", "la-8/bcp", "0.01", ""])
def test_other_values_are_no_paths(text: str) -> None:
    assert not looks_like_path(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("-0.50 to +0.10", "−0.50 to +0.10"),
        ("(95 % interval -1.20 to -0.30, p = 8.3e-05)", "(95 % interval −1.20 to −0.30, p = 8.3e−05)"),
        ("-", "–"),
        ("BRCA-1 and T2-2 and a - b", "BRCA-1 and T2-2 and a - b"),
    ],
)
def test_one_sign_for_numbers_below_zero(text: str, written: str) -> None:
    assert typeset(text) == written
