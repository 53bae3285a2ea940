import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from markupsafe import Markup
from report_fakes import Page

from graftseg.core.errors import visible
from graftseg.reporting.missing import Missing
from graftseg.reporting.rendering import ENVIRONMENT, render
from graftseg.reporting.svg import element


def part(source: str, **view: object) -> str:
    """Render a template that may use all shared parts."""
    names = "head, legend, missing, rows, table"
    return ENVIRONMENT.from_string('{% from "parts.html" import ' + names + " %}" + source).render(view)


def test_values_are_escaped_and_must_be_given() -> None:
    page = render("run_summary", verdicts=["<b>"], facts={}, counts="1 labeled case", state="", notices=[])
    assert isinstance(page, Markup) and "&lt;b&gt;" in page
    with pytest.raises(UndefinedError):
        render("run_summary", verdicts=["<b>"], facts={}, counts="1 labeled case")


@given(st.text())
def test_hidden_characters_are_visible_on_pages_and_in_pictures(text: str) -> None:
    for page in (part("{{ text }}", text=text), element("text", text), element("g", class_=text)):
        assert page == visible(page)
    assert part("{{ text }}", text="\u202eA\x1b<") == r"\u202eA\x1b&lt;"
    assert element("text", "\u202eA\x1b<") == r"<text>\u202eA\x1b&lt;</text>"


def test_an_empty_part_names_the_command() -> None:
    source = "{{ missing(part) }}"
    assert Page(part(source, part=Missing("Nothing.", "<x>", "or y"))).texts == [
        ("p", "Nothing. To fill this section, run "),
        ("code", "<x>"),
        ("p", ", or y."),
    ]
    assert part(source, part=Missing("Nothing.")).strip() == '<p class="missing">Nothing.</p>'
    assert 'href="#results"' in part(source, part=Missing("Nothing.", see_results=True))


def test_a_table_names_its_rows() -> None:
    source = '{% call table("All") %}{{ head(["Case", "Dice"]) }}{{ rows([["<a>", "1"], ["b", "2"]]) }}{% endcall %}'
    page = Page(part(source))
    heads = [("th", "Case"), ("th", "Dice")]
    assert page.texts == [("figcaption", "All"), *heads, ("th", "<a>"), ("td", "1"), ("th", "b"), ("td", "2")]
    assert page.attributes("scope") == ["col", "col", "row", "row"]


def test_legend_leaves_out_the_background_and_escapes() -> None:
    page = Page(part("{{ legend(classes) }}", classes=[(0, "background"), (1, "a<b")]))
    assert page.texts == [("li", "a<b")]
