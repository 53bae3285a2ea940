"""Names of cases and classes: Unicode forms, unprintable characters, copies and suffixes."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import TypeVar

Value = TypeVar("Value")
SEPARATORS = "_-. "
SUFFIX = re.compile(r"(?P<start>.+)[_\-. ](?P<suffix>[^_\-. ]*[^\W\d_][^_\-. ]*)", re.DOTALL)
DUPLICATE = re.compile(r"(?P<original>.+?)(?: \(\d+\)| - Copy(?: \(\d+\))?| copy(?: \d+)?)", re.DOTALL)
"""The name of a second copy of a file, as browsers and file managers write it."""
ENCODED_DIFFERENTLY = "differs only in its Unicode form (NFC and NFD)"

UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories that break lines or cannot be printed: control codes, surrogates and separators."""

INVISIBLE = {0x200B, 0xFEFF, *range(0x202A, 0x202F), *range(0x2060, 0x206A)}
"""Characters that have no width or change the text direction. Joiners are allowed, because some scripts need them."""


def nfc(name: str) -> str:
    """Return a name in Unicode form NFC, because macOS may store ``é`` as two characters."""
    return unicodedata.normalize("NFC", name)


def has_control_characters(name: str) -> bool:
    """Return whether a name contains characters that break lines, cannot be seen or cannot be printed."""
    return any(unicodedata.category(character) in UNPRINTABLE or ord(character) in INVISIBLE for character in name)


def original_name(name: str) -> str | None:
    """Return the name without the ending of a second copy, such as `` (1)``, or None if it has no such ending."""
    match = DUPLICATE.fullmatch(name)
    return match["original"] if match else None


def same_names(names: Iterable[str], others: Iterable[str]) -> set[str]:
    """Return the names that also occur in ``others``, possibly in another Unicode form."""
    normalized = {nfc(other) for other in others}
    return {name for name in names if nfc(name) in normalized}


def by_nfc(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values by name, with every name in Unicode form NFC."""
    return {nfc(name): value for name, value in values.items()}


def split_suffix(name: str) -> tuple[str, str]:
    """Split off the last part of a name if it contains a letter: ``T2`` from ``p1_T2``, but nothing from ``p_01``."""
    match = SUFFIX.fullmatch(nfc(name))
    return (match["start"], match["suffix"]) if match else (nfc(name), "")


def names_extending(name: str, candidates: Iterable[str]) -> list[str]:
    """Return the sorted candidates that start with ``name`` and a separator (``_``, ``-``, dot or space)."""
    starts = tuple(nfc(name) + separator for separator in SEPARATORS)
    return sorted(candidate for candidate in candidates if nfc(candidate).startswith(starts))
