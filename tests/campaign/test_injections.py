"""Hostile names: the checks find planted problems, and a few names go through the commands."""

from pathlib import Path

import pytest
from injections import injections
from payloads import Payload
from sinks import problem, structure_problem

from loops import for_each


@for_each(
    ("sink", "text", "content"),
    [
        ("a.html", "<b>q1</b>", "<script><b>q1</b></script>"),
        ("a.html", "a\u202eq1", "<p>a\u202eq1</p>"),
        ("a.html", "a\u202eq1", "<p title='a&#x202e;q1'></p>"),
        ("a.csv", "=q1", "case,dice\n=q1,1\n"),
        ("a.csv", "a\rq1", "case\na\rq1\n"),
        ("a.json", "a\tq1", '{"a": "a q1"}'),
        ("a.jsonl", "[red]q1", '{"a": "q1"}\n'),
        ("a.yaml", "{q1}", "a: q1\n"),
        ("stdout", "a\x1b[2Jq1", "case a\x1b[2Jq1\n"),
        ("stdout", "a\nq1", "case a\nq1\n"),
    ],
)
def test_a_problem_is_found(sink: str, text: str, content: str) -> None:
    assert problem(Payload("any", text, "q1"), sink, content) is not None


@pytest.mark.parametrize(
    ("sink", "text", "content"),
    [
        ("a.html", "<b>q1</b>", "<p title='&lt;b&gt;q1&lt;/b&gt;'>&lt;b&gt;q1&lt;/b&gt;</p>"),
        ("a.csv", "=q1", "case,dice\n'=q1,1\n"),
        ("a.json", "a\tq1", '{"a": "a\\tq1"}'),
        ("a.yaml", "{q1}", "a: '{q1}'\n"),
        ("stdout", "a\nq1", "\x1b[1mcase\x1b[0m\na\\nq1\n"),
    ],
)
def test_a_name_as_text_is_no_problem(sink: str, text: str, content: str) -> None:
    assert problem(Payload("any", text, "q1"), sink, content) is None


def test_another_structure_is_found() -> None:
    assert structure_problem("<p>&lt;b&gt;</p>", "<p>name</p>") is None
    assert structure_problem("<p><b></p>", "<p>name</p>") is not None
    assert structure_problem("<p onclick=x></p>", "<p onclick=x></p>") is not None


@pytest.mark.slow
def test_injections(tmp_path: Path) -> None:
    part = injections(tmp_path, seed=1, count=40)
    assert (part.tried, part.failures) == (40, [])
