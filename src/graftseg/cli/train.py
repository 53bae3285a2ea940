"""The command ``train``: one network, several seeds, cross-validation, a comparison of methods, or a continued run."""

import atexit
import sys
from collections.abc import Collection
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import typer

from graftseg.cli import arguments, output
from graftseg.cli.launch import launch
from graftseg.cli.output import say
from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.core.phrases import counted
from graftseg.core.torchrun import is_launched
from graftseg.experiments.paper import MAX_SEEDS

LEAVE_ONE_OUT: Literal["loo"] = "loo"
Count = int | Literal["loo"]
Options = dict[str, Any]
ANY_FOLDS, ANY_BASELINE = ("--folds", "--folds 0"), ("--baseline", "--no-baseline")
RECIPE_WITH_FOLDS = "a recipe with folds"
CONFLICTS = {
    "--continue-from": ("RECIPE", *ANY_FOLDS, "--seeds", *ANY_BASELINE, "--compare", "--methods", "--shorter"),
    "--on": ("--devices", "--compare", "--continue-from", "--live"),
    "--devices": ("--seeds", "--compare", "--continue-from", "--live"),
    "--live": ("--folds", "--seeds", "--compare", RECIPE_WITH_FOLDS),
    "--compare": ("--seeds", *ANY_BASELINE, "--folds 0"),
    "--seeds": ("--folds", "--baseline"),
}
"""Options that cannot be combined, by option."""
NEEDED = {"--fraction": "--continue-from", "--methods": "--compare"}
"""Options that need another option."""


@arguments.takes_sources(Annotated[Path | None, typer.Option(help="Prepared store or folder of scans.")])
def train(
    data: arguments.PathOrSources,
    out: Annotated[Path, typer.Option(help="Folder for the run.")],
    recipe: Annotated[str | None, typer.Argument(help="Recipe file, or the name of a shipped recipe.")] = None,
    overrides: arguments.Overrides = None,
    shorter: arguments.Shorter = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped.")] = False,
    protocol: Annotated[
        Literal["last", "val", "paper"] | None, typer.Option(help="Rule to choose a checkpoint (selection.protocol).")
    ] = None,
    baseline: Annotated[
        bool | None,
        typer.Option(
            "--baseline/--no-baseline",
            help="Also train a supervised run into OUT/baseline; by default, the recipe sets this.",
        ),
    ] = None,
    folds: Annotated[
        str | None,
        typer.Option(help="Number of cross-validation folds, loo, or 0 for none; by default, the recipe sets this."),
    ] = None,
    leave_one_out: Annotated[bool, typer.Option("--leave-one-out", help="Same as --folds loo.")] = False,
    seeds: Annotated[
        int,
        typer.Option(
            min=0, max=MAX_SEEDS, help="Train and test this number of seeds, one run per seed, in OUT/seed-N."
        ),
    ] = 0,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Cross-validate several methods, each with an equal share of the plan's time."),
    ] = False,
    methods: Annotated[
        str | None, typer.Option(help="With --compare: methods separated by commas; by default, all planned methods.")
    ] = None,
    continue_from: Annotated[
        Path | None,
        typer.Option(help="Start from the network of this run, after labels were added to its data; needs no RECIPE."),
    ] = None,
    fraction: Annotated[
        float | None,
        typer.Option(help="With --continue-from: share of the steps of a complete training; by default 0.25."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with an error if a class was not learned or the loss did not fall.")
    ] = False,
    live: Annotated[bool, typer.Option("--live", help="Show the progress in the browser.")] = False,
    device: arguments.Device = "auto",
    devices: Annotated[
        int, typer.Option(min=1, help="Train one network on this number of GPUs, or of CPU processes.")
    ] = 1,
    on: arguments.On = None,
) -> None:
    """Train a recipe."""
    from graftseg import api
    from graftseg.core.run_folder import RunFolder
    from graftseg.recipes.recipe import load_recipe
    from graftseg.training.learning_check import require_learned

    chosen = [*(overrides or ()), *([f"selection.protocol={protocol}"] if protocol is not None else ())]
    count = _fold_count(folds, leave_one_out)
    options: Options = {"overrides": chosen, "shorter": shorter, "device": device}
    given = {
        "RECIPE": recipe is not None,
        "--folds": bool(count),
        "--folds 0": count == 0,
        "--seeds": seeds > 0,
        "--baseline": baseline is True,
        "--no-baseline": baseline is False,
        "--compare": compare,
        "--methods": methods is not None,
        "--shorter": shorter != 1,
        "--continue-from": continue_from is not None,
        "--fraction": fraction is not None,
        "--on": on is not None,
        "--devices": devices > 1 or is_launched(),
        "--live": live,
        RECIPE_WITH_FOLDS: live and count is None and bool(recipe and load_recipe(recipe, chosen).folds),
    }
    _refuse_conflicts([name for name, is_given in given.items() if is_given])
    if devices > 1 and not is_launched():
        launch(sys.argv[1:], devices, device)
    if live:
        _show_live(out)
    runs = [out]
    try:
        if continue_from is not None:
            options = {"overrides": chosen, "device": device, "data": data, "fraction": fraction, "resume": resume}
            _continue(continue_from, out, options)
        elif recipe is None:
            remedy = "pass a recipe file or a shipped recipe, or continue a run with --continue-from"
            raise UserError(Code.OPTION_INVALID, "RECIPE", "no recipe given", remedy)
        elif seeds:
            api.train_seeds(recipe, data, out, seeds, on=on, tell=say, **options)
            runs = sorted(out.glob("seed-*"))
        elif compare:
            names = None if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
            runs = _compare(recipe, data, out, count, options | {"resume": resume, "methods": names})
        else:
            _train(recipe, data, out, count, options | {"resume": resume, "baseline": baseline}, on)
    except StoppedError as stopped:
        if not seeds and not resume:
            stopped.remedy = "run the same command with --resume"
        raise
    if strict:
        require_learned(RunFolder(run) for run in runs)


def _refuse_conflicts(given: Collection[str]) -> None:
    for option, other in NEEDED.items():
        if option in given and other not in given:
            raise UserError(Code.OPTION_CONFLICT, option, f"needs {other}", f"add {other}, or omit {option}")
    for option, others in CONFLICTS.items():
        for other in others:
            if option in given and other in given:
                finding, remedy = f"cannot be combined with {other}", f"omit {option}, or train without {other}"
                raise UserError(Code.OPTION_CONFLICT, option, finding, remedy)


def _train(
    recipe: str, data: arguments.PathOrSources, out: Path, folds: Count | None, options: Options, on: str | None
) -> None:
    """Train one network, or one per fold if the command line or the recipe asks for folds."""
    from graftseg import api
    from graftseg.core.run_folder import RunFolder
    from graftseg.data.store import is_store
    from graftseg.recipes.recipe import load_recipe

    count = load_recipe(recipe, options["overrides"]).folds if folds is None else folds
    if count:
        result = api.train_folds(recipe, data, out, folds=count, on=on, tell=say, **options)
        output.print_table(*result.table())
        for sentence in (result.caption(), *result.verdict()):
            say(sentence)
        say(f"next: graftseg report {quote(str(out))}")
        return
    if on is not None:
        remedy = "add --seeds or --folds, or omit --on"
        raise UserError(Code.OPTION_CONFLICT, f"--on {on}", "a single training is not divided into tasks", remedy)
    outcome = api.train(recipe, data, out, **options)
    baseline = RunFolder(out).baseline
    say(f"{out}: finished after {outcome.steps} steps" + (f"; baseline: {baseline.path}" if baseline.exists else ""))
    run = quote(str(out))
    has_test = isinstance(data, Path) and (is_store(data) or (data / "labelsTs").is_dir())
    test = f"graftseg test {run}, or " if has_test else ""
    say(f"next: {test}graftseg predict {run} SCANS --out LABELS")


def _show_live(out: Path) -> None:
    """Serve the live page of a single run until this process ends."""
    from graftseg.cli.view import require_server

    require_server()
    from graftseg.reporting.viewer.launch import require_front_end
    from graftseg.reporting.viewer.view import start_live_page

    require_front_end()
    page = start_live_page(out)
    atexit.register(page.poll)  # keeps the input of the page open until the end


def _continue(run: Path, out: Path, options: Options) -> None:
    from graftseg import api

    result = api.continue_training(run, out, **options)
    labels = counted(len(result.new_labels), "new label")
    say(f"{out}: finished after {result.outcome.steps} steps, with {labels}")
    if result.gain is not None:
        say(f"gain: {result.gain.sentence}")
    name = quote(str(out))
    say(f"next: graftseg rank {name}, or graftseg predict {name} SCANS --out LABELS")


def _compare(
    recipe: str, data: arguments.PathOrSources, out: Path, folds: Count | None, options: Options
) -> list[Path]:
    """Train several methods; print their scores and the command that trains the best one. Return their folders."""
    from graftseg import api

    result = api.compare_methods(recipe, data, out, folds=folds, tell=say, **options)
    output.print_table(*result.table())
    for sentence in result.verdict():
        say(sentence)
    final = f"{quote(str(result.final_recipe))} {arguments.data_options(data)} --out {quote(str(out / 'final'))}"
    say(f"report: {out / 'report.html'}")
    say(f"next, to train {result.best.method} on all labels: graftseg train {final}")
    return [out / compared.method for compared in result.results]


def _fold_count(text: str | None, leave_one_out: bool) -> Count | None:
    """Return the number of folds, ``loo``, 0 for a single network, or None if no option is given."""
    if leave_one_out and text not in (None, LEAVE_ONE_OUT):
        raise UserError(Code.OPTION_CONFLICT, f"--folds {text}", "conflicts with --leave-one-out", "use one of them")
    if leave_one_out or text == LEAVE_ONE_OUT:
        return LEAVE_ONE_OUT
    if text is None:
        return None
    if not text.isdecimal() or int(text) == 1:
        remedy = "use 2 or more, loo, or 0 for a single network"
        raise UserError(Code.OPTION_INVALID, f"--folds {text}", "not a number of folds", remedy)
    return int(text)
