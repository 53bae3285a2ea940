"""Phrases of messages and reports: numbers with nouns, durations, sentences, shortened lists, names of classes."""

from collections.abc import Sequence


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: 1 voxel, 2 voxels."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """Return seconds as text with at most two units, such as ``1 min 15 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def as_sentence(clause: str) -> str:
    """Return a clause with a capital letter at the start and a period at the end."""
    return f"{clause[:1].upper()}{clause[1:]}."


def and_more(first: str, total: int) -> str:
    """Return the first of ``total`` names and the number of the other names: ``a and 2 more``."""
    return f"{first} and {total - 1} more" if total > 1 else first


def class_name(value: int, names: Sequence[str] = ()) -> str:
    """Return the name of a class. Classes without a name are numbered, after the background."""
    return names[value] if value < len(names) else f"class {value}" if value else "background"
