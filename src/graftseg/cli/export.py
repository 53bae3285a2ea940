"""Commands that rank scans with a run, export a run, or import the weights of other programs as a run."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from graftseg.cli.arguments import Device, On, Overrides, Run, print_table
from graftseg.cli.messages import print_errors, say
from graftseg.core.phrases import counted
from graftseg.inference.ranking import DEFAULT_ORDER, Order


def rank(
    run: Run,
    data: Annotated[
        Path | None, typer.Option(help="Prepared store or folder of scans; by default the training data of the run.")
    ] = None,
    by: Annotated[
        Order,
        typer.Option(
            help="uncertainty: uncertain scans, and scans that differ from the labeled scans, first; "
            "coverage: scans that represent many uncertain scans first."
        ),
    ] = DEFAULT_ORDER,
    top: Annotated[int, typer.Option(min=1, help="Number of scans to print.")] = 10,
    out: Annotated[Path | None, typer.Option(help="CSV file for the ranking of all scans, such as rank.csv.")] = None,
    device: Device = "auto",
    on: On = None,
) -> None:
    """List the unlabeled scans that are most worth annotating next, with reasons."""
    from graftseg import api
    from graftseg.inference.ranking.rank import HEAD

    ranking = api.rank(run, data, by=by, out=out, device=device, on=on)
    print_table(HEAD, ranking.lines(top))
    if shared := ranking.in_common():
        say(shared)
    if out is not None:
        say(f"{out}: {counted(len(ranking.rows), 'scan')}")
    for sentence in ranking.unlearned:
        say(sentence)
    print_errors(ranking.failures)
    if ranking.failures:
        raise typer.Exit(2)


def export(
    kind: Annotated[str, typer.Argument(help="onnx, weights, monai, nnunet or dicomseg.")],
    run: Run,
    out: Annotated[Path, typer.Option(help="New folder to write, or new file for weights.")],
    check: Annotated[
        Path | None, typer.Option(help="Scan on which to compare the exported network with the original (onnx).")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="nnunet: folder of the scans, by default those of the run; dicomseg: the DICOM scans of predict."
        ),
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="Folder of label maps (nnunet, dicomseg); by default RUN/predictions.")
    ] = None,
    codes: Annotated[
        Path | None, typer.Option(help="JSON file with SNOMED CT codes (dicomseg); by default RUN/codes.json.")
    ] = None,
) -> None:
    """Export a run as ONNX, safetensors, MONAI bundle, nnU-Net data set or DICOM segmentations."""
    from graftseg import api

    for line in api.export(kind, run, out, check=check, data=data, predictions=predictions, codes=codes):
        say(line)


def import_weights(
    weights: Annotated[Path, typer.Argument(help=".pth file saved by the public BCP or SSL4MIS code (LA or ACDC).")],
    out: Annotated[Path, typer.Option(help="New run folder to write.")],
    recipe: Annotated[
        str | None, typer.Option(help="Recipe for prediction; by default la-8/bcp (V-Net) or acdc-7/bcp (U-Net).")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Make a run from a network that was trained with the public BCP or SSL4MIS code, to predict scans with it."""
    from graftseg import api

    run = api.import_weights(weights, out, recipe=recipe, overrides=overrides or ())
    say(f"{run.path}: a run with classes {', '.join(run.training_manifest()['store']['classes'])}")
    say(f"next: graftseg predict {quote(str(run.path))} SCANS --out LABELS")
