"""The command that trains: one network, several seeds, or folds, with or without a baseline beside them."""

from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import typer

from graftseg.cli.arguments import Device, Given, Overrides, Shorter, print_table, takes_sources
from graftseg.core.errors import Code, StoppedError, UserError

LEAVE_ONE_OUT: Literal["loo"] = "loo"
Count = int | Literal["loo"]
Ask = dict[str, Any]


@takes_sources(Annotated[Path | None, typer.Option(help="Prepared store or folder of scans.")])
def train(
    recipe: Annotated[str, typer.Argument(help="Recipe file, or the name of a shipped one.")],
    data: Given,
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    overrides: Overrides = None,
    shorter: Shorter = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    protocol: Annotated[
        str | None, typer.Option(help="Checkpoint that is reported: last, val or paper (sets selection.protocol).")
    ] = None,
    baseline: Annotated[
        bool | None,
        typer.Option(
            "--baseline/--no-baseline",
            help="A supervised run beside it, as OUT/baseline; by default as the recipe says.",
        ),
    ] = None,
    folds: Annotated[
        str | None,
        typer.Option(help="Divide the labeled cases into so many folds, loo: one case each, 0: none; see the recipe."),
    ] = None,
    leave_one_out: Annotated[bool, typer.Option("--leave-one-out", help="The same as --folds loo.")] = False,
    seeds: Annotated[
        int, typer.Option(min=0, help="Train with so many seeds, each into OUT/seed-N, and test each run.")
    ] = 0,
    device: Device = "auto",
) -> None:
    """Train a recipe."""
    if protocol is not None and protocol not in ("last", "val", "paper"):
        raise UserError(Code.UNKNOWN_NAME, f"--protocol {protocol}", "unknown", "choose one of last, val and paper")
    chosen = [*(overrides or ()), *([f"selection.protocol={protocol}"] if protocol is not None else ())]
    asked = _folds(folds, leave_one_out)
    again = "run the same command again" if seeds else "the same command with --resume goes on"
    try:
        if seeds:
            _refuse_beside_seeds(asked, baseline)
            _train_seeds(recipe, data, out, seeds, {"overrides": chosen, "shorter": shorter, "device": device})
        else:
            ask = {"overrides": chosen, "shorter": shorter, "device": device, "resume": resume, "baseline": baseline}
            _train(recipe, data, out, asked, ask)
    except StoppedError as stopped:
        typer.echo(f"graftseg: {stopped}; {again}", err=True)
        raise typer.Exit(128 + stopped.signal) from None


def _train(recipe: str, data: Given, out: Path, asked: Count | None, ask: Ask) -> None:
    """One network, or one for each fold where folds are asked for, here or by the recipe."""
    from graftseg import api
    from graftseg.core.run_folder import RunFolder
    from graftseg.recipes.recipe import load_recipe

    loaded = load_recipe(recipe, ask["overrides"])
    count = loaded.folds if asked is None else asked
    if count:
        result = api.train_folds(recipe, data, out, folds=count, tell=typer.echo, **ask)
        print_table(*result.table())
        for sentence in (result.caption(), *result.verdict()):
            typer.echo(sentence)
        typer.echo(f"next: graftseg report {quote(str(out))}")
        return
    outcome = api.train(recipe, data, out, **ask)
    beside = RunFolder(out).baseline
    typer.echo(f"{out}: finished after {outcome.steps} steps" + (f"; baseline: {beside.path}" if beside.exists else ""))
    run = quote(str(out))
    test = f"graftseg test {run}, or " if _has_test(data) else ""
    typer.echo(f"next: {test}graftseg predict {run} SCANS --out LABELS")


def _has_test(data: Given) -> bool:
    """Whether test scans with labels are likely to be there; a store may hold them."""
    from graftseg.data.sources import Sources
    from graftseg.data.store import is_store

    return not isinstance(data, Sources) and (is_store(data) or (data / "labelsTs").is_dir())


def _train_seeds(recipe: str, data: Given, out: Path, seeds: int, ask: Ask) -> None:
    from graftseg.experiments.seeds import train_seeds

    train_seeds(recipe, data, out, seeds, tell=typer.echo, **ask)


def _folds(text: str | None, leave_one_out: bool) -> Count | None:
    """The number of folds that is asked for, 0 for none, or to leave out one case at a time; None where nothing is."""
    if leave_one_out and text not in (None, LEAVE_ONE_OUT):
        raise UserError(Code.OPTION_CONFLICT, f"--folds {text}", "contradicts --leave-one-out", "give one of the two")
    if leave_one_out or text == LEAVE_ONE_OUT:
        return LEAVE_ONE_OUT
    if text is None:
        return None
    if not text.isdecimal() or int(text) == 1:
        raise UserError(
            Code.OPTION_INVALID,
            f"--folds {text}",
            "no number of folds",
            "give 2 or more, loo, or 0 for a single network",
        )
    return int(text)


def _refuse_beside_seeds(asked: Count | None, baseline: bool | None) -> None:
    if asked or baseline:
        finding = "several seeds are trained on all labeled cases, without folds and without a baseline"
        raise UserError(Code.OPTION_CONFLICT, "--seeds", finding, "leave out --seeds, or --folds and --baseline")
