"""Case names, independent of the Unicode form in which a file system stores them."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import TypeVar

Value = TypeVar("Value")
SEPARATORS = "_-. "
SUFFIX = re.compile(r"(?P<start>.+)[_\-. ](?P<suffix>[^_\-. ]*[^\W\d_][^_\-. ]*)", re.DOTALL)
ENCODED_DIFFERENTLY = "differs only in its Unicode form (NFC and NFD)"


def nfc(name: str) -> str:
    """Return a name in Unicode form NFC, because macOS may store ``é`` as two characters."""
    return unicodedata.normalize("NFC", name)


def same_names(names: Iterable[str], others: Iterable[str]) -> set[str]:
    """Return the names that also occur in ``others``, possibly in another Unicode form."""
    known = {nfc(other) for other in others}
    return {name for name in names if nfc(name) in known}


def by_nfc(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values by name, with every name in Unicode form NFC."""
    return {nfc(name): value for name, value in values.items()}


def split_suffix(name: str) -> tuple[str, str]:
    """Split a name at its last ``_``, ``-``, dot or space if the suffix contains a letter.

    A number is not a suffix: ``p1_T2`` has the suffix ``T2``, but ``p_0001`` has an empty suffix.
    """
    match = SUFFIX.fullmatch(nfc(name))
    return (match["start"], match["suffix"]) if match else (nfc(name), "")


def names_extending(name: str, others: Iterable[str]) -> list[str]:
    """Return the names in ``others`` that start with ``name`` and a separator (``_``, ``-``, dot or space), sorted."""
    starts = tuple(nfc(name) + separator for separator in SEPARATORS)
    return sorted(other for other in others if nfc(other).startswith(starts))
