"""Names of cases that are the same to a person, however their letters are encoded."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import TypeVar

Value = TypeVar("Value")
MARKS = "_-. "
ENDING = re.compile(r"(?P<beginning>.+)[_\-. ](?P<ending>[^_\-. ]*[^\W\d_][^_\-. ]*)", re.DOTALL)
ENCODED_DIFFERENTLY = "differs only in how its letters are encoded (Unicode NFC and NFD)"


def nfc(name: str) -> str:
    """A name in one form, NFC: an ``é`` may be one letter, or a letter and an accent, as some systems write it."""
    return unicodedata.normalize("NFC", name)


def same_names(names: Iterable[str], others: Iterable[str]) -> set[str]:
    """Those of the names that are among the others, whatever their form."""
    known = {nfc(other) for other in others}
    return {name for name in names if nfc(name) in known}


def by_nfc(values: Mapping[str, Value]) -> dict[str, Value]:
    """The values by their names in one form."""
    return {nfc(name): value for name, value in values.items()}


def split_suffix(name: str) -> tuple[str, str]:
    """What stands before and after the last ``_``, ``-``, point or blank of a name, if there is a letter after it.

    A number counts cases and is no ending, so ``p1_T2`` has one and ``p_0001`` has none.
    """
    match = ENDING.fullmatch(nfc(name))
    return (match["beginning"], match["ending"]) if match else (nfc(name), "")


def names_extending(name: str, others: Iterable[str]) -> list[str]:
    """Those of the other names, in order, that go on after this one with ``_``, ``-``, a point or a blank."""
    return sorted(other for other in others if nfc(other).startswith(tuple(nfc(name) + mark for mark in MARKS)))
