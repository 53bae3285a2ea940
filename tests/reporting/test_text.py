import math

import pytest

from graftseg.reporting.text import fixed, listed, looks_like_path, percent, short_path, typeset


def test_numbers() -> None:
    assert (percent(0.12345), fixed(-1.0), fixed(math.nan)) == ("12.35", "−1.00", "–")


def test_long_lists_are_shortened() -> None:
    assert [listed(list("abcde")[:count]) for count in (1, 2, 4, 5)] == [
        "a",
        "a and b",
        "a, b, c and d",
        "a, b, c and 2 more",
    ]


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
def test_paths_are_recognized(text: str) -> None:
    assert looks_like_path(text)


@pytest.mark.parametrize("text", ["bcp", "la-8/bcp", "0.01", ""])
def test_other_values_are_not_paths(text: str) -> None:
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
def test_minus_signs(text: str, written: str) -> None:
    assert typeset(text) == written
