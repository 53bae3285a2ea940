"""The command figure: the figures of the paper for any run."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from graftseg.cli.arguments import Device, print_table
from graftseg.cli.messages import say

MAX_SEED = 2**32 - 1


def figure(
    name: Annotated[Literal["density", "dice-over-time", "methods", "masks"], typer.Argument(help="Figure to draw.")],
    runs: Annotated[list[Path], typer.Argument(help="Folders of training runs.")],
    out: Annotated[Path, typer.Option(help="File to write: .svg, .png or .pdf.")],
    case: Annotated[list[str] | None, typer.Option(help="With methods: test case to show. May be repeated.")] = None,
    view: Annotated[
        Literal["slices", "surfaces", "both"] | None,
        typer.Option(help="With methods: by default, slices of 2-D scans, and both of volumes."),
    ] = None,
    hidden_labels: Annotated[
        bool,
        typer.Option("--hidden-labels", help="With density: read labels of the store that training did not use."),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of random masks and sampled voxels.")] = 0,
    device: Device = "auto",
) -> None:
    """Draw a figure of the paper for one or several runs."""
    from graftseg import api

    drawn = api.figure(
        name, *runs, out=out, cases=case or (), view=view, seed=seed, hidden_labels=hidden_labels, device=device
    )
    print_table(drawn.head, drawn.rows)
    say(drawn.caption)
    say(drawn.path)


COMMANDS = (figure,)
