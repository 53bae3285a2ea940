"""The commands that export a run, and import weights of other programs as a run."""

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from graftseg.cli.arguments import Overrides, Run
from graftseg.cli.output import say


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
            help="nnunet: folder of the scans, by default those of the run; dicomseg: the predicted DICOM scans."
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
