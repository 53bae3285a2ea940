"""Twelve class colors that people with red-green color blindness can distinguish."""

# Any two colors are at least 25 apart in CIELAB, even under simulated deuteranopia and protanopia.
COLORS = (
    "#e69f00", "#56b4e9", "#009e73", "#f5ec8c", "#4a4af0", "#b8430a",
    "#b8f2ea", "#aa4499", "#503418", "#5088f8", "#3434a4", "#6c3450",
)  # fmt: skip


def color_of(label: int) -> str:
    """Return the color of the class with this label value (1 or more). After the last color, the colors repeat."""
    return COLORS[(label - 1) % len(COLORS)]
