"""Times as people say them."""

from graftseg.core.errors import Code, UserError
from graftseg.planning.choices import counted

HOURS = 120
"""Minutes from which on hours are told."""
EXACT = 10
"""Minutes below which a tenth is told."""
ENDLESS = 1_000_000
"""Minutes that nobody means: two years."""


def spoken(minutes: float) -> str:
    """So many minutes, as in ``20 seconds``, ``6.7 minutes`` and ``2 hours 3 minutes``."""
    if minutes * 60 < 59.5:
        return counted(max(1, round(minutes * 60)), "second")
    tenths = f"{minutes:.1f}"
    if minutes < EXACT and not tenths.endswith(".0"):
        return f"{tenths} minutes"
    whole = round(minutes)
    if whole < HOURS:
        return counted(whole, "minute")
    hours, rest = divmod(whole, 60)
    return counted(hours, "hour") + (f" {counted(rest, 'minute')}" if rest else "")


def requested_minutes(minutes: float) -> str:
    """Minutes that somebody gave, as they were typed."""
    return "1 minute that was asked for" if minutes == 1 else f"{minutes:g} minutes that were asked for"


def refuse_minutes(minutes: float | None) -> None:
    """Refuse what is no time to train in."""
    if minutes is not None and not 0 < minutes < ENDLESS:
        finding = "a training takes time" if minutes <= 0 else "no time that a training can take"
        raise UserError(
            Code.RECIPE_MISMATCH, f"--minutes {minutes:g}", finding, f"give minutes above 0 and below {ENDLESS}"
        )
