"""The command line: a table from verb to the function that Python users call."""

import io
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from shlex import quote
from typing import Annotated, NoReturn

import typer

from graftseg.cli import check as cli_check
from graftseg.cli import export as cli_export
from graftseg.cli import results as cli_results
from graftseg.cli import train as cli_training
from graftseg.cli.arguments import (
    Data,
    Device,
    Given,
    Overrides,
    Run,
    as_typed,
    print_facts,
    print_table,
    takes_sources,
    tell_once,
)
from graftseg.cli.briefs import brief
from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.core.files import check_target_file, denied
from graftseg.core.version import __version__

app = typer.Typer(
    name="graftseg",
    help="Segment medical scans from a few labeled and many unlabeled ones, by bidirectional copy-paste.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

LARGEST_SEED = 2**63 - 1
MOST_TIMED = 10**6
"""More steps, or rounds of them, than anyone waits for."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for scans, runs and the report.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the phantoms and of the training.")] = 0,
    dimensions: Annotated[int, typer.Option(min=2, max=3, help="2 for slices, 3 for volumes.")] = 2,
    seeds: Annotated[int, typer.Option(min=0, help="Repeat with so many other seeds and print a table.")] = 0,
    device: Device = "auto",
) -> None:
    """Make synthetic scans and take them through the whole pipeline, with and without the unlabeled ones."""
    from graftseg.cli.demo import run_demo, run_seeds
    from graftseg.experiments.seed_counts import check_seeds

    if seeds:
        check_seeds(seeds)
        typer.echo(run_seeds(out, range(1, seeds + 1), dimensions=dimensions, device=device))
    else:
        typer.echo(run_demo(out, seed=seed, dimensions=dimensions, device=device))


app.command()(cli_check.check)


@app.command()
@takes_sources(Data)
def plan(
    data: Given,
    out: Annotated[Path, typer.Option(help="Recipe to write.")] = Path("plan.yaml"),
    minutes: Annotated[
        float | None, typer.Option(help="What everything that the plan trains may take; by default 60.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda:N or cuda, which need not be in this machine.")] = "auto",
) -> None:
    """Write a recipe that is fitted to the scans and to a device, with the reason for every value."""
    from graftseg import api
    from graftseg.planning.plans import USE

    lines = api.plan(data, out, device=device, minutes=minutes).read_text().splitlines()
    head = [line.removeprefix("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines)]
    for line in head[: head.index(USE)]:
        typer.echo(line)
    typer.echo(f"plan: {out}")
    typer.echo(f"next: graftseg train {quote(str(out))} {as_typed(data)} --out RUN")


@app.command()
@takes_sources(Data)
def prepare(
    data: Given,
    out: Annotated[Path, typer.Option(help="Store to write or bring up to date.")],
    recipe: Annotated[
        str | None, typer.Option(help="Recipe whose settings are used; by default the planned one.")
    ] = None,
    benchmark: Annotated[
        str | None, typer.Option(help="la, acdc, pancreas or pancreas-62: read DATA as this published data set.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Bring scans to one orientation, spacing and scale of intensities, ready for training."""
    from graftseg import api

    store = api.prepare(data, out, recipe=recipe, benchmark=benchmark, overrides=overrides or ())
    typer.echo(f"{store.path}: {len(store.cases)} cases, classes {', '.join(store.classes)}")


app.command()(cli_training.train)


@app.command()
def predict(
    run: Run,
    scans: Annotated[Path, typer.Argument(help="Scan, folder of scans, or prepared store: its test cases.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the label maps; by default RUN/predictions.")] = None,
    checkpoint: Annotated[
        str, typer.Option(help="shipped, or best: the best of those that the run scored (into RUN/predictions-best).")
    ] = "shipped",
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Use the network otherwise: inference.overlap=0.75.")
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write CASE_probabilities.nii.gz too, one channel a class.")
    ] = False,
    uncertainty: Annotated[
        bool, typer.Option("--uncertainty", help="Write CASE_uncertainty.nii.gz too: 0 is sure, 1 a mere guess.")
    ] = False,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Write CASE.png too, for 2-D scans: class numbers as grey values.")
    ] = False,
    tta: Annotated[
        bool, typer.Option("--tta", help="Average over all flips: 4 times the work in 2-D, 8 in 3-D.")
    ] = False,
    fold: Annotated[
        int | None, typer.Option(min=0, help="Of a run that holds folds, this one alone in place of their mean.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Write label maps in the geometry of the scans."""
    from graftseg import api
    from graftseg.inference.predict import CHECKPOINTS, FLIPS

    kind = next((known for known in CHECKPOINTS if known == checkpoint), None)
    if kind is None:
        raise UserError(
            Code.UNKNOWN_NAME, f"--checkpoint {checkpoint}", "unknown", f"choose one of {', '.join(CHECKPOINTS)}"
        )
    predicted = api.predict(
        run,
        scans,
        out,
        checkpoint=kind,
        overrides=[*(overrides or ()), *([FLIPS] if tta else ())],
        device=device,
        fold=fold,
        probabilities=probabilities,
        uncertainty=uncertainty,
        pictures=pictures,
    )
    count, empty = len(predicted.cases), sum(case.is_empty for case in predicted.cases)
    maps = "1 label map" if count == 1 else f"{count} label maps"
    typer.echo(f"{predicted.folder}: {maps}" + (f", {empty} of them empty" if empty else ""))
    if predicted.unfound:
        typer.echo(f"Warning: in none of the label maps: {', '.join(predicted.unfound)}")
    tell_once((*predicted.warnings, *predicted.failures))
    if predicted.failures:
        raise typer.Exit(2)


@app.command()
def evaluate(
    predictions: Annotated[Path, typer.Argument(help="Folder of label maps.")],
    reference: Annotated[Path, typer.Option(help="Folder of label maps of the same names, or a prepared store.")],
    out: Annotated[
        Path | None, typer.Option(help="Table to write; by default metrics.csv beside the label maps.")
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="standard, or paper: an empty prediction scores 0 everywhere.")
    ] = "standard",
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Leave out label maps and references without a partner.")
    ] = False,
) -> None:
    """Compare label maps with references, case by case and class by class."""
    from graftseg import api
    from graftseg.evaluation.figures import scores_table
    from graftseg.evaluation.metrics import PROTOCOLS

    if protocol not in PROTOCOLS:
        raise UserError(Code.UNKNOWN_NAME, f"--protocol {protocol}", "unknown", f"choose one of {', '.join(PROTOCOLS)}")
    evaluation = api.evaluate(predictions, reference, out, protocol=protocol, allow_missing=allow_missing)
    print_table(*scores_table(evaluation))
    if not evaluation.has_spacing:
        typer.echo("distances in millimetres would be the same as in voxels")
    rule = {"standard": "the image's diagonal as distance", "paper": "0 in every metric"}[protocol]
    typer.echo(f"protocol: {protocol} (an empty label map of a class that is there scores {rule})")


@app.command()
def report(
    run: Run,
    out: Annotated[Path | None, typer.Option(help="Page to write; by default RUN/report.html.")] = None,
    baseline: Annotated[Path | None, typer.Option(help="Another run to set beside this one.")] = None,
) -> None:
    """Write one self-contained page about a run."""
    from graftseg import api

    typer.echo(api.report(run, out, baseline=baseline))


@app.command()
def bench(
    recipe: Annotated[str, typer.Argument(help="Recipe with a stage of bcp: a file, or the name of a shipped one.")],
    data: Annotated[Path | None, typer.Option(help="Prepared store; by default phantoms of the recipe's kind.")] = None,
    steps: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_TIMED,
            help="Timed steps of each way, over all rounds together: 30 in 3 rounds are 10 a round.",
        ),
    ] = 30,
    rounds: Annotated[int, typer.Option(min=1, max=MOST_TIMED, help="How often the two ways take turns.")] = 3,
    usual: Annotated[bool, typer.Option("--usual/--no-usual", help="Time the usual way too.")] = True,
    persistent_workers: Annotated[
        bool, typer.Option("--persistent-workers", help="Let the usual way keep its workers from epoch to epoch.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--json", help="File to write the figures to.")] = None,
    overrides: Overrides = None,
    device: Device = "auto",
) -> None:
    """Time a self-training step of bcp on this machine, phase by phase, beside the usual way of running it.

    The recipe must have a stage of bcp that pastes boxes both ways, as la-8/bcp and default-2d/bcp; the steps of other
    methods are not timed.
    """
    from graftseg import api
    from graftseg.core.files import write_json
    from graftseg.experiments.speed.measure import Plan
    from graftseg.experiments.speed.page import table

    plan = Plan(steps, rounds, usual, persistent_workers=persistent_workers)
    if out is not None:
        check_target_file(out)
    result = api.bench(recipe, data, overrides=overrides or (), device=device, plan=plan)
    typer.echo(table(result))
    if out is not None:
        write_json(out, result.to_json())


for command in (*cli_results.COMMANDS, *cli_export.COMMANDS):
    app.command()(command)


@app.command()
@takes_sources(Annotated[str | None, typer.Argument(help="Folder of a run, a store or scans, or a recipe.")], "what")
def info(
    what: str | Given,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the name of every case.")] = False,
) -> None:
    """Describe a run, a store, a folder of scans or a recipe."""
    from graftseg import api

    facts = api.info(what)
    print_facts(facts if as_json else brief(facts), as_json)


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print versions, devices and free disk."""
    from graftseg import api

    print_facts(api.doctor(), as_json)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Segment medical scans from a few labeled and many unlabeled ones, by bidirectional copy-paste."""
    if show:
        typer.echo(__version__)
        raise typer.Exit


def main() -> NoReturn:
    """Run the command line; a user's mistake is one sentence on standard error and exit code 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a path that is not UTF-8 must not stop what was done well
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with _telling_of_interrupts():
            app()
    except UserError as error:
        typer.echo(f"graftseg: {error}", err=True)
        sys.exit(2)
    except PermissionError as error:
        typer.echo(f"graftseg: {denied(error)}", err=True)
        sys.exit(2)
    except OSError as error:
        typer.echo(
            f"graftseg: {error.filename or 'a file'}: {error.strerror or error}; check disk and permissions.", err=True
        )
        sys.exit(2)
    except StoppedError as stopped:
        typer.echo(f"graftseg: {stopped}", err=True)
        sys.exit(128 + stopped.signal)
    except MemoryError:
        typer.echo("graftseg: the memory of this machine is full; use a larger one or smaller scans.", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


@contextmanager
def _telling_of_interrupts() -> Iterator[None]:
    """Say so when Ctrl-C or SIGTERM ends a command, and end as after any failure, so that nothing stays half-written.

    What parses the command line would end without a word at Ctrl-C, and the operating system at once at SIGTERM, which
    it does if it comes again. A training has its own way to stop.
    """

    def interrupt(number: int, frame: object) -> None:
        typer.echo("graftseg: interrupted", err=True)
        raise KeyboardInterrupt

    def terminate(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        typer.echo("graftseg: stopped by SIGTERM", err=True)
        raise SystemExit(128 + number)

    handlers = {signal.SIGINT: interrupt, signal.SIGTERM: terminate}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
