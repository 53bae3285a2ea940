"""Commands for tested runs: test, compare, record, table and sweep."""

from pathlib import Path
from typing import Annotated

import typer

from graftseg.cli.arguments import AllowMissing, Device, On, Overrides, Results, Run, Shorter
from graftseg.cli.output import print_table, print_warning, say
from graftseg.core.errors import Code, UserError
from graftseg.core.phrases import counted
from graftseg.experiments.paper import ALL, MAX_SEEDS, TABLES, benchmark_of

NAMES_HELP = f"{', '.join(TABLES)} or {ALL}."
DEFAULT_RESULTS = Path("results")


def test(
    run: Run,
    data: Annotated[
        Path | None,
        typer.Argument(help="Folder with imagesTs and labelsTs, or prepared store; by default the data of RUN."),
    ] = None,
    test_images: Annotated[Path | None, typer.Option(help="Instead of DATA: folder of the test images.")] = None,
    test_labels: Annotated[Path | None, typer.Option(help="Folder of the label maps of the test images.")] = None,
    allow_missing: AllowMissing = False,
    device: Device = "auto",
) -> None:
    """Predict and score test scans with a run and its baseline, compare the scores, and write the report."""
    from graftseg import api
    from graftseg.evaluation.comparison import HEAD
    from graftseg.evaluation.table_metrics import scores_table

    tested = api.test(run, data, images=test_images, labels=test_labels, device=device, allow_missing=allow_missing)
    say(f"test scans: {tested.scans.images}")
    for path, evaluation in tested.scores.items():
        count = len({row.case for row in evaluation.rows})
        say(f"{path}: {counted(count, 'test case')}")
        print_table(*scores_table(evaluation))
    if tested.comparison is not None:
        say(f"first {tested.comparison.first.path}, second {tested.comparison.second.path}")
        # graftseg compare prints the other metrics
        print_table(HEAD, tested.comparison.table_rows(["dice"]))
    for sentence in tested.verdict():
        say(sentence)
    say(f"report: {tested.report}")


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Tested runs or records. Each is compared with the first.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for comparison.csv, comparison.json and comparison.svg.")
    ] = None,
) -> None:
    """Compare runs with the first run, case by case: differences, 95 % intervals, Wilcoxon test, wins and losses."""
    from graftseg import api
    from graftseg.evaluation.comparison import HEAD

    for comparison in api.compare(*runs, out=out):
        for line in comparison.notes():
            say(line)
        print_table(HEAD, comparison.table_rows())


def record(
    run: Run,
    out: Annotated[
        Path | None, typer.Option(help="Folder of this record; by default RESULTS/RECIPE/seed-N[-VARIANT].")
    ] = None,
    variant: Annotated[str, typer.Option(help="Name for a run whose settings differ from the shipped recipe.")] = "",
    results: Results = DEFAULT_RESULTS,
) -> None:
    """Save settings, log, scores and environment of a tested run, but no data and no weights."""
    from graftseg import api

    say(api.record(run, out, variant=variant, results=results))


def table(
    name: Annotated[str, typer.Argument(help=NAMES_HELP)],
    results: Annotated[Path | None, typer.Option(help="Folder of all records; by default results.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="File to write instead of printing the table.")] = None,
) -> None:
    """Print a table of the paper, with the scores of recorded runs and the published scores."""
    from graftseg import api
    from graftseg.core.files import check_target_file, write_text

    if markdown is None:
        text = api.table(name, results)
        if results is None and not DEFAULT_RESULTS.exists():
            print_warning(f"folder {DEFAULT_RESULTS} is missing, so the table contains published scores only")
        say(text, nl=False)
        return
    # with --markdown, a missing folder of records is an error
    results = results or DEFAULT_RESULTS
    text = api.table(name, results)
    if (markdown.parent.resolve() / markdown.name).is_relative_to(results.resolve()):
        finding = f"is in the folder of the records, {results}"
        raise UserError(Code.UNSAFE_TARGET, markdown, finding, "choose a path outside this folder")
    check_target_file(markdown)
    write_text(markdown, text)
    say(markdown)


def sweep(
    name: Annotated[str, typer.Argument(help=NAMES_HELP)],
    data: Annotated[
        list[str] | None, typer.Option(help="Prepared store, or NAME=STORE for each of several data sets: la=STORE.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs, as RECIPE/seed-N[-VARIANT].")] = Path("runs"),
    results: Results = DEFAULT_RESULTS,
    seeds: Annotated[int, typer.Option(min=1, max=MAX_SEEDS, help="Number of seeds per row.")] = 1,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only recipes that match: la-8/bcp or 'la-4/*'. May be repeated.")
    ] = None,
    overrides: Overrides = None,
    shorter: Shorter = 1,
    variant: Annotated[
        str, typer.Option(help="Name for the changes by --set and --shorter. Records are saved under this name.")
    ] = "",
    device: Device = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list recorded and missing runs.")] = False,
    on: On = None,
) -> None:
    """Train, test and record the missing rows of a table. To resume a stopped sweep, run the same command again."""
    from graftseg import api

    swept = api.sweep(
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
        on=on,
        tell=say,
    )
    if swept.failures or swept.other_settings:
        raise typer.Exit(1)


def _stores(texts: list[str]) -> Path | dict[str, Path] | None:
    """Return one path without a data set, or the paths of ``NAME=STORE`` by data set, or None without ``--data``."""
    given = [_store(text) for text in texts]
    names, stores = [name for name, _ in given], dict(given)
    if "" in names and len(names) > 1:
        remedy = "name the data set of each store: --data la=STORE --data acdc=STORE"
        raise UserError(Code.OPTION_INVALID, "--data", "the data set of a store is not named", remedy)
    if repeated := [name for name in names if names.count(name) > 1]:
        finding = f"two stores for the data set {repeated[0]}"
        raise UserError(Code.OPTION_INVALID, "--data", finding, "pass only one store for each data set")
    return stores.get("") or stores or None


def _store(text: str) -> tuple[str, Path]:
    """Return the data set and the path of ``NAME=STORE``. A plain path, which may contain ``=``, has an empty name."""
    name, equals, path = text.partition("=")
    benchmarks = sorted({benchmark_of(row.recipe) for entry in TABLES.values() for row in entry.rows})
    if not equals or (name.lower() not in benchmarks and ("/" in name or Path(text).exists())):
        return "", Path(text)
    if name.lower() not in benchmarks:
        finding, remedy = f"unknown data set {name!r}", f"choose one of {', '.join(benchmarks)}"
        raise UserError(Code.UNKNOWN_NAME, f"--data {text}", finding, remedy)
    if not path:
        raise UserError(Code.OPTION_INVALID, f"--data {text}", "the path is missing", f"write {name}=STORE")
    return name.lower(), Path(path)
