"""The command figure: the figures of the paper for any run."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from graftseg.cli.arguments import print_table
from graftseg.cli.messages import say

MAX_SEED = 2**32 - 1


def figure(
    name: Annotated[Literal["density", "dice-over-time", "methods", "masks"], typer.Argument(help="Figure to draw.")],
    runs: Annotated[list[Path], typer.Argument(help="Folders of training runs.")],
    out: Annotated[Path, typer.Option(help="File to write: .svg, .png or .pdf.")],
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of random masks and sampled voxels.")] = 0,
) -> None:
    """Draw a figure of the paper for one or several runs."""
    from graftseg import api

    drawn = api.figure(name, *runs, out=out, seed=seed)
    print_table(drawn.head, drawn.rows)
    say(drawn.caption)
    say(drawn.path)


COMMANDS = (figure,)
