"""With how many seeds a recipe is trained."""

from graftseg.core.errors import Code, UserError

MOST_SEEDS = 100


def check_seeds(count: int) -> None:
    """Refuse more seeds than anybody trains, before they are counted out."""
    if count > MOST_SEEDS:
        raise UserError(
            Code.OPTION_INVALID, f"--seeds {count}", f"more than {MOST_SEEDS} seeds of a recipe", "name fewer"
        )
