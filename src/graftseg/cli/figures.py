"""The command ``figure``: draw the figures of the paper for any run."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from graftseg.cli.arguments import Device
from graftseg.cli.output import print_table, say
from graftseg.core.errors import Code, UserError


def figure(
    name: Annotated[Literal["density", "dice-over-time", "methods", "masks"], typer.Argument(help="Figure to draw.")],
    runs: Annotated[list[Path], typer.Argument(help="Folders of training runs.")],
    out: Annotated[Path | None, typer.Option(help="File to write: .svg, .png or .pdf.")] = None,
    svg: Annotated[bool, typer.Option("--svg", help="Write SVG, by default NAME.svg.")] = False,
    png: Annotated[bool, typer.Option("--png", help="Write PNG, by default NAME.png.")] = False,
    pdf: Annotated[bool, typer.Option("--pdf", help="Write PDF, by default NAME.pdf.")] = False,
    case: Annotated[
        list[str] | None, typer.Option(help="Only for the figure 'methods': a test case to show. May be repeated.")
    ] = None,
    view: Annotated[
        Literal["slices", "surfaces", "both"] | None,
        typer.Option(
            help="Only for the figure 'methods': what to show. By default, slices for 2-D scans, both for volumes."
        ),
    ] = None,
    hidden_labels: Annotated[
        bool,
        typer.Option(
            "--hidden-labels", help="Only for the figure 'density': read labels of the store that training did not use."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of random masks and sampled voxels.")] = 0,
    device: Device = "auto",
) -> None:
    """Draw a figure of the paper for one or several runs."""
    from graftseg import api

    target = _target(name, out, [suffix for suffix, chosen in ((".svg", svg), (".png", png), (".pdf", pdf)) if chosen])
    drawn = api.figure(
        name, *runs, out=target, cases=case or (), view=view, seed=seed, hidden_labels=hidden_labels, device=device
    )
    print_table(drawn.head, drawn.rows)
    say(drawn.caption)
    say(drawn.path)


def _target(name: str, out: Path | None, chosen: list[str]) -> Path:
    """Return the file to write. The format is the suffix of ``out``, or the chosen suffix if ``out`` has none."""
    from graftseg.reporting.figures.drawing import FORMATS

    options = [f"--{suffix[1:]}" for suffix in chosen]
    if len(options) > 1:
        raise UserError(Code.OPTION_CONFLICT, options[0], f"cannot be combined with {options[1]}", "choose one format")
    if out is None and not chosen:
        remedy = "add --out FILE, or --svg, --png or --pdf for a file in this folder"
        raise UserError(Code.OPTION_INVALID, "--out", "no file given", remedy)
    target = Path(name) if out is None else out
    if not chosen or target.suffix.lower() == chosen[0]:
        return target
    if target.suffix.lower() in FORMATS:
        raise UserError(Code.OPTION_CONFLICT, options[0], f"cannot be combined with --out {out}", f"omit {options[0]}")
    return target.with_name(target.name + chosen[0])
