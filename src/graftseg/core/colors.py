"""One colour per class, told apart also by people who confuse red with green."""

# Each pair is at least 25 apart in CIELAB, seen normally and under simulated deuteranopia and protanopia.
COLORS = (
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#f5ec8c",
    "#4a4af0",
    "#b8430a",
    "#b8f2ea",
    "#aa4499",
    "#503418",
    "#5088f8",
    "#3434a4",
    "#6c3450",
)


def color_of(label: int) -> str:
    """The colour of a class; labels count from 1, and after the last colour the first comes again."""
    return COLORS[(label - 1) % len(COLORS)]
