"""The commands for what comes after a training: scans to annotate next, and the network for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from graftseg.cli.arguments import Device, Run, print_table, tell_once

KINDS = "onnx, weights, monai, nnunet or dicomseg."


def rank(
    run: Run,
    data: Annotated[
        Path | None, typer.Option(help="Prepared store or folder of scans; by default what the run was trained on.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Print so many scans; the table holds all.")] = 10,
    out: Annotated[Path | None, typer.Option(help="Table to write, such as rank.csv.")] = None,
    device: Device = "auto",
) -> None:
    """Say which unlabeled scans are most worth annotating next, and why."""
    from graftseg import api
    from graftseg.inference.ranking.rank import HEAD

    ranking = api.rank(run, data, out=out, device=device)
    print_table(HEAD, ranking.lines(top))
    if shared := ranking.in_common():
        typer.echo(shared)
    if out is not None:
        typer.echo(f"{out}: {len(ranking.rows)} scans")
    for sentence in ranking.unlearned:
        typer.echo(sentence)
    tell_once(ranking.failures)
    if ranking.failures:
        raise typer.Exit(2)


def export(
    kind: Annotated[str, typer.Argument(help=KINDS)],
    run: Run,
    out: Annotated[Path, typer.Option(help="File (weights) or folder to write; it must not exist.")],
    check: Annotated[Path | None, typer.Option(help="onnx: a scan to compare the network on.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="nnunet: folder of the scans; dicomseg: folder of a DICOM series, or of several."),
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="nnunet, dicomseg: folder of label maps; by default RUN/predictions.")
    ] = None,
) -> None:
    """Write a run for other programs: ONNX, safetensors, a MONAI bundle, an nnU-Net data set, DICOM segmentations."""
    from graftseg import api

    for line in api.export(kind, run, out, check=check, data=data, predictions=predictions):
        typer.echo(line)


COMMANDS = (rank, export)
