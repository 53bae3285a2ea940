"""Planted patient data: no output contains a text from the header of a scan."""

from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from random import Random

from command import command
from leaks import contents, leaked, unpacked
from part import Part
from planting import BELOW, Vault, write_pictures, write_volumes
from small_data import write_recipe

PROMISE = "no output contains a planted text from a header, and only files that list paths contain names of folders"
EXPORTS = {"weights": "weights.safetensors", "nnunet": "Dataset501_X", "monai": "bundle", "onnx": "onnx"}
"""Exports and their targets. DICOM segmentations are left out, because they must have the patient tags of the scan."""
FEW = 50
"""With fewer planted texts, the slow exports are left out."""
ABOVE = "folder above the data"
ALLOWED = {
    f"{ABOVE}, *": {
        "*/run.json": "names the store and the data folder, so that test and rank find them again",
        "*/store/manifest.json": "names the data folder, so that another prepare can detect other data",
        "*/store/cases/*.json": "names the data folder, so that another prepare can detect other data",
        "*/predictions/manifest.json": "names the scan of each label map",
        "*/predictions/cases.jsonl": "names the scan of each label map",
        "*/maps/manifest.json": "names the scan of each label map",
        "*/maps/cases.jsonl": "names the scan of each label map",
        "*/unlabeled/manifest.json": "names the scan of each label map",
        "*/unlabeled/cases.jsonl": "names the scan of each label map",
        "*/metrics.json": "names the folder of the references",
        "* stdout": "a command may repeat the paths that it was given",
        "* stderr": "a command may repeat the paths that it was given",
    },
    f"{BELOW}, *": {
        "*/store/manifest.json": "names the source files of each case, so that another prepare can detect changes",
        "*/store/cases/*.json": "names the source files of the case, so that another prepare can detect changes",
        "* stdout": "a finding may name a file",
        "* stderr": "an error may name a file",
    },
}
"""Where a planted text is allowed, by place and output, with the reason. Case names come from file names and are not
planted. ``docs/reference/files.md`` says which files contain paths. Pages, tables, records, networks and exports
have no exception."""


def identifiers(work: Path, seed: int, count: int) -> Part:
    """Plant ``count`` texts, run all commands, and search all outputs for each text."""
    part, random = Part("identifiers", PROMISE), Random(seed)
    every = Vault(random)
    _write(every, work / "all")
    vault = Vault(random, random.sample(sorted(every.secrets), min(count, len(every.secrets))))
    out, written = work / "out", _write(vault, work / "home")
    out.mkdir(parents=True)
    printed: dict[str, str] = {}
    exports = [kind for kind in EXPORTS if count >= FEW or kind in ("weights", "nnunet")]
    for data in written:
        for output, text in _run_all_commands(data, out / data.name, exports):
            printed[f"{data.name} {output}"] = text
        exports = []
    searched = [*contents(out), *(pair for name, text in printed.items() for pair in unpacked(name, text.encode()))]
    part.notes["searched"] = f"{len(searched)} contents, {sum(len(content) for _, content in searched) / 2**20:.1f} MiB"
    for place, secret in vault.secrets.items():
        found = {name for name, content in searched if leaked(secret, content) and not _is_allowed(place, name)}
        part.expect(not found, f"{place}: found in {', '.join(_kinds(found))}")
    if failed := [line for name, line in printed.items() if name.endswith("exit")]:
        part.expect(False, f"commands failed: {'; '.join(failed)}")
    return part


def _write(vault: Vault, folder: Path) -> tuple[Path, Path]:
    """Write two data sets below folders with planted names."""
    above = folder / vault.text(f"{ABOVE}, user") / vault.text(f"{ABOVE}, study")
    return write_volumes(vault, above / "volumes"), write_pictures(vault, above / "pictures")


def _kinds(names: set[str]) -> list[str]:
    """Return the outputs without the names of cases, such as ``run/store/cases/*.json``."""
    return sorted(
        {name if "/cases/" not in name else f"{name.rpartition('/')[0]}/*{Path(name).suffix}" for name in names}
    )


def _is_allowed(place: str, name: str) -> bool:
    outputs = (output for pattern, outputs in ALLOWED.items() if fnmatch(place, pattern) for output in outputs)
    return any(fnmatch(name, output) for output in outputs)


def _run_all_commands(data: Path, out: Path, exports: list[str]) -> Iterator[tuple[str, str]]:
    """Run all commands on a data set. Yield the name and the text of every stream, and of every failure."""
    out.mkdir()
    run, recipe = out / "run", write_recipe(out / "recipe.yaml")
    commands: list[tuple[object, ...]] = [
        ("check", data, "--out", out / "check.html"),
        ("check", data, "--fix", out / "fixed"),
        ("plan", data, "--out", out / "plan.yaml", "--minutes", "1"),
        ("prepare", data, "--out", out / "store", "--recipe", recipe),
        ("train", recipe, "--data", data, "--out", run, "--baseline"),
        ("predict", run, data / "imagesTs", "--out", out / "maps", "--probabilities", "--uncertainty"),
        ("evaluate", out / "maps", "--reference", data / "labelsTs"),
        ("test", run),
        ("report", run, "--out", out / "page.html"),
        ("rank", run, "--out", out / "rank.csv"),
        ("compare", run, run / "baseline", "--out", out / "comparison"),
        ("record", run, "--results", out / "results"),
        ("info", run, "--json"),
        ("info", data, "--json"),
    ]
    for kind in exports:
        options = ("--data", data, "--predictions", out / "unlabeled") if kind == "nnunet" else ()
        if options:
            commands.append(("predict", run, data / "imagesUn", "--out", out / "unlabeled"))
        commands.append(("export", kind, run, "--out", out / EXPORTS[kind], *options))
    for number, words in enumerate(commands):
        printed = command(*words)
        yield f"{number} {words[0]} stdout", printed.out
        yield f"{number} {words[0]} stderr", printed.error
        # check ends with 2 if it found a problem of the data
        if printed.code and (words[0] != "check" or printed.error):
            yield f"{number} exit", f"{words[0]} ended with {printed.code}: {printed.error.strip()[-300:]}"
