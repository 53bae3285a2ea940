"""Names of cases that are the same to a person, however their letters are encoded."""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import TypeVar

Value = TypeVar("Value")
OTHERWISE = "differs only in how its letters are encoded (Unicode NFC and NFD)"


def spelled(name: str) -> str:
    """A name in one form, NFC: an ``é`` may be one letter, or a letter and an accent, as some systems write it."""
    return unicodedata.normalize("NFC", name)


def same_names(names: Iterable[str], others: Iterable[str]) -> set[str]:
    """Those of the names that are among the others, whatever their form."""
    known = {spelled(other) for other in others}
    return {name for name in names if spelled(name) in known}


def by_spelling(values: Mapping[str, Value]) -> dict[str, Value]:
    """The values by their names in one form."""
    return {spelled(name): value for name, value in values.items()}
