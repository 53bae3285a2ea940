"""What someone may have meant who wrote a name that there is not."""

from collections.abc import Sequence
from difflib import get_close_matches

CLOSE = 0.75
"""How much alike two names are of which one may be meant by the other, between 0 and 1."""


def likely(given: str, known: Sequence[str]) -> str:
    """The known name that is most like the given one, or else those of its folder, in a phrase; empty for none."""
    folder, slash, name = given.lower().partition("/")
    beside = [name.partition("/")[2] for name in known if name.startswith(f"{folder}/")]
    if beside and not name:
        return f"{folder}/ has {', '.join(beside)}"
    by_letters = {name.lower(): name for name in known}
    if close := get_close_matches(given.lower(), by_letters, 1, CLOSE):
        return f"perhaps {by_letters[close[0]]} is meant"
    return f"{folder}/ has {', '.join(beside)}" if slash and beside else ""
