"""The command line and its shorter commands. Most call the function of the same name in :mod:`graftseg.api`."""

import io
import sys
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal, NoReturn

import typer

from graftseg.cli import arguments, output
from graftseg.cli.check import check
from graftseg.cli.export import export, import_weights
from graftseg.cli.figures import figure
from graftseg.cli.output import say
from graftseg.cli.rank import rank
from graftseg.cli.results import compare, record, sweep, table, test
from graftseg.cli.train import train
from graftseg.cli.view import annotate, view
from graftseg.core.errors import Code, UserError
from graftseg.core.files import check_working_directory
from graftseg.core.phrases import counted
from graftseg.core.planned_methods import DEFAULT_METHOD, MethodName
from graftseg.core.reading import read_text
from graftseg.core.torchrun import is_launched, reported_status
from graftseg.core.version import __version__
from graftseg.experiments.paper import MAX_SEEDS

app = typer.Typer(
    name="graftseg",
    help="Train segmentation networks for medical scans from a few labeled and many unlabeled scans.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

MAX_SEED = 2**63 - 1
MAX_TIMED_STEPS = 10**6


def add_command(function: Callable[..., None]) -> Callable[..., None]:
    """Add a command to the command line, with the option ``--json``."""
    app.command()(arguments.with_json_errors(function))
    return function


@add_command
def demo(
    out: Annotated[Path, typer.Option(help="Folder for scans, runs and the report.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the phantoms and the training.")] = 0,
    dimensions: Annotated[int, typer.Option(min=2, max=3, help="2 for slices, 3 for volumes.")] = 2,
    seeds: Annotated[
        int, typer.Option(min=0, max=MAX_SEEDS, help="Repeat with this number of seeds and print a table.")
    ] = 0,
    device: arguments.Device = "auto",
) -> None:
    """Create synthetic scans and run the complete pipeline on them, with and without the unlabeled scans."""
    from graftseg.cli.demo import run_demo, run_seeds

    if seeds:
        say(run_seeds(out, range(1, seeds + 1), dimensions=dimensions, device=device))
    else:
        say(run_demo(out, seed=seed, dimensions=dimensions, device=device))


add_command(check)


@add_command
@arguments.takes_sources(arguments.Data)
def plan(
    data: arguments.PathOrSources,
    out: Annotated[Path, typer.Option(help="Recipe to write.")] = Path("plan.yaml"),
    minutes: Annotated[
        float | None, typer.Option(help="Minutes for training, including all folds and baselines; by default 60.")
    ] = None,
    method: Annotated[MethodName, typer.Option(help="Method that learns from the unlabeled scans.")] = DEFAULT_METHOD,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda:N, or cuda (even if there is no GPU here).")] = "auto",
) -> None:
    """Write a recipe that fits the scans and the device, with the reason for every value."""
    from graftseg import api
    from graftseg.planning.plans import TRAIN_LINE

    lines = read_text(api.plan(data, out, device=device, minutes=minutes, method=method)).splitlines()
    head = [line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines)]
    for line in head[: head.index(TRAIN_LINE)]:
        say(line)
    say(f"plan: {out}")
    say(f"next: graftseg train {quote(str(out))} {arguments.data_options(data)} --out RUN")


@add_command
@arguments.takes_sources(arguments.Data)
def prepare(
    data: arguments.PathOrSources,
    out: Annotated[Path, typer.Option(help="Store to create or update.")],
    recipe: Annotated[
        str | None, typer.Option(help="Recipe with the data settings; by default they are planned from the data.")
    ] = None,
    benchmark: Annotated[
        str | None, typer.Option(help="la, acdc, pancreas or pancreas-62: read DATA as this published data set.")
    ] = None,
    overrides: arguments.Overrides = None,
    on: arguments.On = None,
) -> None:
    """Convert scans to one orientation, voxel spacing and intensity scale, ready for training."""
    from graftseg import api

    store = api.prepare(data, out, recipe=recipe, benchmark=benchmark, overrides=overrides or (), on=on)
    say(f"{store.path}: {len(store.cases)} cases, classes {', '.join(store.classes)}")


add_command(train)


@add_command
def predict(
    run: arguments.Run,
    scans: Annotated[
        Path, typer.Argument(help="Scan, folder, list of scans (.txt), or prepared store with test cases.")
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the label maps; by default RUN/predictions.")] = None,
    checkpoint: Annotated[
        Literal["shipped", "best"],
        typer.Option(help="shipped (reported checkpoint) or best (best score); best writes to RUN/predictions-best."),
    ] = "shipped",
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override an inference setting: inference.overlap=0.75.")
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also write CASE_probabilities.nii.gz, one channel per class.")
    ] = False,
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Also write CASE_uncertainty.nii.gz, from 0 (certain) to 1 (random).")
    ] = False,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Also write CASE.png for 2-D scans: class numbers as gray values.")
    ] = False,
    tta: Annotated[
        bool, typer.Option("--tta", help="Average over flips along mirrored axes, or all axes: 2 to 8 times the work.")
    ] = False,
    fold: Annotated[
        int | None, typer.Option(min=0, help="Use only this cross-validation fold instead of the mean of all folds.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also predict scans that already have a label map of the same settings.")
    ] = False,
    shard: Annotated[
        str | None, typer.Option(help="Predict only a part of the scans: 3/8 is the third of eight parts.")
    ] = None,
    device: arguments.Device = "auto",
    on: arguments.On = None,
) -> None:
    """Write label maps with the geometry of the scans."""
    from graftseg import api
    from graftseg.inference.predict import FLIPS

    predicted = api.predict(
        run,
        scans,
        out,
        checkpoint=checkpoint,
        overrides=[*(overrides or ()), *([FLIPS] if tta else ())],
        device=device,
        fold=fold,
        probabilities=probabilities,
        uncertainty=uncertainty,
        pictures=pictures,
        again=again,
        shard=shard,
        on=on,
    )
    if predicted.network:
        say(f"network: {predicted.network}")
    count, empty = len(predicted.cases), sum(case.is_empty for case in predicted.cases)
    failed = f", {counted(len(predicted.failures), 'scan')} failed" if predicted.failures else ""
    say(f"{predicted.folder}: {counted(count, 'label map')}" + (f", {empty} of them empty" if empty else "") + failed)
    if predicted.skipped:
        say(f"skipped {predicted.skipped} of {count}: the label maps are up to date; --again predicts them again")
    if others := predicted.others:
        kept = counted(others, "other label map")
        say(f"{predicted.folder}: already contained {kept}, which {'is' if others == 1 else 'are'} unchanged")
    if predicted.unfound:
        say(f"Warning: classes that no label map contains: {', '.join(predicted.unfound)}")
    for warning in dict.fromkeys(predicted.warnings):
        output.print_warning(warning)
    output.print_errors(predicted.failures)
    if predicted.failures:
        raise typer.Exit(2)


@add_command
def evaluate(
    predictions: Annotated[Path, typer.Argument(help="Folder of label maps.")],
    reference: Annotated[Path, typer.Option(help="Folder of label maps with the same names, or a prepared store.")],
    out: Annotated[
        Path | None, typer.Option(help="Table to write; by default metrics.csv in the folder of the label maps.")
    ] = None,
    protocol: Annotated[
        Literal["standard", "paper"], typer.Option(help="standard, or paper: a missed class scores 0 in every metric.")
    ] = "standard",
    tolerance: Annotated[
        float, typer.Option(min=0, help="Largest distance in mm that counts as agreement in the surface Dice.")
    ] = 1.0,
    allow_missing: arguments.AllowMissing = False,
) -> None:
    """Compare label maps with references for each case and class."""
    from graftseg import api
    from graftseg.evaluation.table_metrics import scores_table

    evaluation = api.evaluate(
        predictions, reference, out, protocol=protocol, tolerance=tolerance, allow_missing=allow_missing
    )
    output.print_table(*scores_table(evaluation))
    if not evaluation.has_spacing:
        say("distances in millimeters are the same as in voxels")
    rule = {"standard": "its distances are the image diagonal", "paper": "it scores 0 in every metric"}[protocol]
    say(f"surface Dice: share of both surfaces that is at most {tolerance:g} mm from the other surface")
    say(f"protocol: {protocol} (if a class is missed, {rule})")


@add_command
def report(
    run: arguments.Run,
    out: Annotated[Path | None, typer.Option(help="Page to write; by default RUN/report.html.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="Other run to compare RUN with.")] = None,
) -> None:
    """Write a self-contained HTML page about a run."""
    from graftseg import api

    say(api.report(run, out, baseline=baseline))


@add_command
def bench(
    recipe: Annotated[str, typer.Argument(help="Recipe with a bcp stage: a file, or the name of a shipped recipe.")],
    data: Annotated[Path | None, typer.Option(help="Prepared store; by default phantoms that fit the recipe.")] = None,
    steps: Annotated[
        int,
        typer.Option(
            min=1,
            max=MAX_TIMED_STEPS,
            help="Timed steps of each implementation, divided into rounds: 30 steps in 3 rounds are 10 per round.",
        ),
    ] = 30,
    rounds: Annotated[int, typer.Option(min=1, max=MAX_TIMED_STEPS, help="Number of rounds.")] = 3,
    usual: Annotated[bool, typer.Option("--usual/--no-usual", help="Also time the usual implementation.")] = True,
    persistent_workers: Annotated[
        bool, typer.Option("--persistent-workers", help="Usual implementation: keep loader processes between epochs.")
    ] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="File for the timings. Errors are printed as JSON, too.")
    ] = None,
    overrides: arguments.Overrides = None,
    device: arguments.Device = "auto",
) -> None:
    """Time the phases of a bcp self-training step on this machine.

    The step is compared with the usual implementation in published training scripts. The recipe must have a bcp stage
    that pastes boxes in both directions, such as la-8/bcp and default-2d/bcp.
    """
    from graftseg import api
    from graftseg.core.files import check_target_file, write_json
    from graftseg.experiments.speed.measure import Plan, measurement_table

    plan = Plan(steps, rounds, usual, persistent_workers=persistent_workers)
    if json_file is not None:
        check_target_file(json_file)
    result = api.bench(recipe, data, overrides=overrides or (), device=device, plan=plan)
    say(measurement_table(result))
    if json_file is not None:
        write_json(json_file, result.to_json())


for command in (test, compare, record, table, sweep, figure, rank, export, import_weights, view, annotate):
    add_command(command)


@add_command
@arguments.takes_sources(
    Annotated[str | None, typer.Argument(help="Run, prepared store, folder of scans, or recipe.")], "what"
)
def info(
    what: str | arguments.PathOrSources,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON with all case names. Errors are JSON, too.")
    ] = False,
) -> None:
    """Describe a run, a store, a folder of scans or a recipe."""
    from graftseg import api
    from graftseg.experiments.description import brief

    facts = api.info(what)
    # YAML would wrap a long command
    command = None if as_json else facts.pop("resume_command", None)
    output.print_facts(facts if as_json else brief(facts), as_json)
    if command is not None:
        say(f"next: {command}")


@add_command
def doctor(
    recipes: Annotated[
        bool, typer.Option("--recipes", help="Print only the names of all shipped recipes, one per line.")
    ] = False,
    as_json: arguments.AsJson = False,
) -> None:
    """Print versions, devices, free disk and the shipped recipes."""
    from graftseg import api
    from graftseg.experiments.description import machine_lines

    facts = api.doctor()
    if as_json:
        output.print_facts({"recipes": facts["recipes"]} if recipes else facts, as_json)
        return
    for line in facts["recipes"] if recipes else machine_lines(facts):
        say(line)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """Train segmentation networks for medical scans from a few labeled and many unlabeled scans."""
    if version:
        say(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)
    check_working_directory()


def main() -> NoReturn:
    """Run the command line. Print a user error as one line on stderr and exit with code 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a path that is not UTF-8 must not make a successful command fail
        sys.stdout.reconfigure(errors="backslashreplace")
    words, is_final = sys.argv[1:], True
    name = next((word for word in words if not word.startswith("-")), "graftseg")
    with output.stderr_format(output.wants_json(words)):
        try:
            with output.interruptible(name):
                if is_launched() and name != "train":
                    finding, remedy = "runs in one process only", "run it without torchrun"
                    raise UserError(Code.OPTION_CONFLICT, name, finding, remedy)
                status = app(prog_name="graftseg", standalone_mode=False) or 0
        except Exception as error:
            reported = output.as_user_error(error, name)
            if reported is None:
                raise
            output.print_error(reported[0])
            status, is_final = reported[1], reported[0].code is not Code.RANK_LOST
    sys.exit(reported_status(status, is_final=is_final))
