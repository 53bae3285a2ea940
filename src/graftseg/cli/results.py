"""The commands around results: records, tables, and the runs that fill them."""

from pathlib import Path
from typing import Annotated

import typer

from graftseg.cli.arguments import Device, Overrides, Results, Run, Shorter, print_table
from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.experiments.paper import ALL, TABLES

NAMES = f"{', '.join(TABLES)} or {ALL}."
RESULTS = Path("results")


def test(
    run: Run,
    data: Annotated[
        Path | None,
        typer.Argument(help="Folder with imagesTs and labelsTs, or prepared store; by default what RUN was made from."),
    ] = None,
    test_images: Annotated[Path | None, typer.Option(help="In place of DATA: folder of the test images.")] = None,
    test_labels: Annotated[Path | None, typer.Option(help="Folder of their label maps.")] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Leave out label maps and references without a partner.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Predict and score test scans with a run and its baseline, side by side, and write the report."""
    from graftseg import api
    from graftseg.evaluation.comparison import HEAD
    from graftseg.evaluation.figures import scores_table

    examined = api.test(run, data, images=test_images, labels=test_labels, device=device, allow_missing=allow_missing)
    typer.echo(f"test scans: {examined.scans.images}")
    for path, evaluation in examined.scores.items():
        count = len({row.case for row in evaluation.rows})
        typer.echo(f"{path}: {count} test case{'s' if count > 1 else ''}")
        print_table(*scores_table(evaluation))
    if examined.beside is not None:
        typer.echo(f"first {examined.beside.first.name}, second {examined.beside.second.name}")
        # the other figures are told by graftseg compare
        print_table(HEAD, [line for line in examined.beside.table_rows() if line[0] == "Dice %"])
    for sentence in examined.verdict():
        typer.echo(sentence)
    typer.echo(f"report: {examined.report}")


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of tested runs, or records; each beside the first.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for comparison.csv, comparison.json and comparison.svg.")
    ] = None,
) -> None:
    """Set runs beside the first, case by case: differences, 95 % intervals, Wilcoxon's test, cases won and lost."""
    from graftseg import api
    from graftseg.evaluation.comparison import HEAD

    for beside in api.compare(*runs, out=out):
        for line in beside.notes():
            typer.echo(line)
        print_table(HEAD, beside.table_rows())


def record(
    run: Run,
    out: Annotated[
        Path | None, typer.Option(help="Folder of this record; by default RESULTS/RECIPE/seed-N[-VARIANT].")
    ] = None,
    variant: Annotated[str, typer.Option(help="Name of what differs from the shipped recipe.")] = "",
    results: Results = RESULTS,
) -> None:
    """Keep settings, log, scores and environment of a tested run; no data and no weights."""
    from graftseg import api

    typer.echo(api.record(run, out, variant=variant, results=results))


def table(
    name: Annotated[str, typer.Argument(help=NAMES)],
    results: Annotated[Path | None, typer.Option(help="Folder of all records; by default results.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="File to write instead of printing.")] = None,
    pages: Annotated[
        Path | None, typer.Option(help="Folder of the methods' pages, whose parts Our number are written anew.")
    ] = None,
) -> None:
    """Print a table of the paper: recorded runs beside the published figures."""
    from graftseg import api
    from graftseg.core.files import check_target_file, write_text
    from graftseg.experiments.method_pages import without_page

    if markdown is None and pages is None:
        text = api.table(name, results)
        if results is None and not RESULTS.exists():
            typer.echo(f"graftseg: there is no folder {RESULTS} here, so only published figures are told", err=True)
        typer.echo(text, nl=False)
        return
    # what is written into files is never that of a folder that is not there
    results = results or RESULTS
    text = api.table(name, results)
    for option, target in (("--markdown", markdown), ("--pages", pages)):
        _refuse_among_records(option, target, results)
    if markdown is not None:
        check_target_file(markdown)
        if pages is not None and markdown.resolve().parent == pages.resolve():
            raise UserError(
                Code.UNSAFE_TARGET,
                markdown,
                "lies among the methods' pages, which it might replace",
                "name another --markdown",
            )
    if pages is not None:
        for page in api.fill_pages(pages, results):
            typer.echo(page)
        for method in without_page(pages, results):
            typer.echo(f"{method}: recorded, and no page in {pages} has a part Our number for it")
    if markdown is not None:
        write_text(markdown, text)
        typer.echo(markdown)


def _refuse_among_records(option: str, target: Path | None, results: Path) -> None:
    """What is written lies apart from the records, of which it might replace a file."""
    if target is not None and (target.parent.resolve() / target.name).is_relative_to(results.resolve()):
        raise UserError(
            Code.UNSAFE_TARGET,
            target,
            f"lies among the records in {results}",
            f"name another {option}, outside of that folder",
        )


def sweep(
    name: Annotated[str, typer.Argument(help=NAMES)],
    data: Annotated[
        list[str] | None, typer.Option(help="Prepared store; of several data sets each by name, as in la=STORE.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs, as RECIPE/seed-N[-VARIANT].")] = Path("runs"),
    results: Results = RESULTS,
    seeds: Annotated[int, typer.Option(min=1, help="So many seeds of each row.")] = 1,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this recipe, or those of a pattern: 'la-4/*'. May be repeated.")
    ] = None,
    overrides: Overrides = None,
    shorter: Shorter = 1,
    variant: Annotated[
        str, typer.Option(help="Name of what --set and --shorter change, under which the runs are recorded.")
    ] = "",
    device: Device = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is recorded and what is missing.")] = False,
) -> None:
    """Train, test and record the missing rows of a table, one after the other; the same command goes on."""
    from graftseg.experiments.sweep import sweep as run_sweep

    _refuse_folders(only or [])
    try:
        swept = run_sweep(
            name,
            _stores(data or []),
            out,
            results=results,
            seeds=seeds,
            only=only or (),
            overrides=overrides or (),
            shorter=shorter,
            variant=variant,
            device=device,
            dry_run=dry_run,
            tell=typer.echo,
        )
    except StoppedError as stopped:
        typer.echo(f"graftseg: {stopped}; run the same command again", err=True)
        raise typer.Exit(128 + stopped.signal) from None
    except (KeyboardInterrupt, SystemExit):
        # between trainings; what stopped it was told by whoever caught the signal
        if not dry_run:
            typer.echo("graftseg: the same command goes on", err=True)
        raise
    if swept.failures or swept.otherwise:
        raise typer.Exit(1)


def _refuse_folders(only: list[str]) -> None:
    from graftseg.recipes.recipe import shipped_recipes

    folders = {name.partition("/")[0] for name in shipped_recipes()}
    for one in only:
        if (folder := one.rstrip("/")) in folders:
            raise UserError(
                Code.OPTION_INVALID,
                f"--only {one}",
                "a folder of recipes, not one of them",
                f"write --only '{folder}/*' for all in it",
            )


def _stores(given: list[str]) -> Path | dict[str, Path] | None:
    """A store, or stores by the name of their data set; what is before an equals sign is a name."""
    named = {name.lower(): path for name, path in (one.split("=", 1) for one in given if _is_named(one))}
    plain = [one for one in given if not _is_named(one)]
    if len(plain) > 1 or (plain and named) or len(named) + len(plain) < len(given):
        finding = f"{len(given)} stores that cannot be told apart"
        raise UserError(
            Code.OPTION_INVALID,
            "--data",
            finding,
            "name each once by its data set, as in --data la=STORE --data acdc=STORE",
        )
    return Path(plain[0]) if plain else {name: Path(path) for name, path in named.items()} or None


def _is_named(text: str) -> bool:
    """Whether a store is given by the name of its data set; also the path of a store may have an equals sign."""
    name, equals, path = text.partition("=")
    known = sorted({row.benchmark for one in TABLES.values() for row in one.rows})
    if not equals or (name.lower() not in known and ("/" in name or Path(text).exists())):
        return False
    if name.lower() not in known:
        raise UserError(
            Code.UNKNOWN_NAME, f"--data {text}", f"no data set is called {name!r}", f"name one of {', '.join(known)}"
        )
    if not path:
        raise UserError(
            Code.OPTION_INVALID,
            f"--data {text}",
            "no path is given",
            f"name the store after the equals sign: {name}=STORE",
        )
    return True


COMMANDS = (test, compare, record, table, sweep)
