"""Names of classes that can stand in tables, sentences and files as they are."""

import unicodedata
from collections import Counter
from collections.abc import Iterable

from graftseg.core.names import spelled

UNPRINTED = ("Cc", "Cs", "Zl", "Zp")
"""Kinds of characters that move the cursor, break a line or are none: control codes, surrogates, separators."""


UNSEEN = {0x200B, 0xFEFF, *range(0x202A, 0x202F), *range(0x2060, 0x206A)}
"""Characters that take no room or turn the direction of what follows; joiners, which some scripts need, are none."""


def name_problem(names: Iterable[str]) -> str | None:
    """What is wrong with names of classes, or None; letters of every script are fine."""
    listed = list(names)
    for name in listed:
        if not name.strip():
            return "a class has no name"
        if any(unicodedata.category(letter) in UNPRINTED or ord(letter) in UNSEEN for letter in name):
            return f"the class {name!a:.60} has control characters in its name"
    name, times = max(Counter(map(spelled, listed)).items(), key=lambda pair: pair[1], default=("", 0))
    return f"{times} classes are called {name}" if times > 1 else None
