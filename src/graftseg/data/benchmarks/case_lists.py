"""The case lists of benchmarks, from the data or from the publications."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.reading import read_start
from graftseg.core.types import Case
from graftseg.data.folders import with_children

MAX_BYTES = 2**24  # maximum size of a list
PUBLISHED = Path(__file__).parent / "lists"  # folder of the published lists


def read_list(path: Path) -> list[str]:
    """Return the entries of a list, one per line, without empty lines and without a byte order mark."""
    remedy = "restore the file, or remove it to use the published list"
    try:
        lines = read_start(path, MAX_BYTES).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(Code.READ_FAILED, path, f"the list cannot be read ({error})", remedy) from None
    entries = [line.strip() for line in lines if line.strip()]
    if not entries:
        raise UserError(Code.BENCHMARK_MISMATCH, path, "the list is empty", remedy)
    return entries


def entries_of(root: Path, published: str, *names: str) -> tuple[Path, list[str]]:
    """Return path and entries of the first list of ``names`` in a folder or its subfolders, else of ``published``."""
    path = PUBLISHED / published
    # a broken link counts as existing, so that reading it fails instead of using the published list
    paths = [folder / name for name in names for folder in with_children(root)]
    existing = [path for path in paths if path.is_file() or path.is_symlink()]
    if existing:
        path, same_name = existing[0], [other for other in existing if other.name == existing[0].name]
        if path.parent != root and len(same_name) > 1:
            finding = f"two lists are named {path.name}, in {path.parent.name} and {same_name[1].parent.name}"
            raise UserError(Code.BENCHMARK_MISMATCH, root, finding, f"keep one, or put the right one into {root.name}")
    return path, read_list(path)


def find_repeated(root: Path, cases: Iterable[Case]) -> Iterator[UserError]:
    """Yield an error for each case that is listed twice, possibly for training and test."""
    seen: dict[str, Case] = {}
    for case in cases:
        first = seen.setdefault(case.name, case)
        if first is not case:
            splits = f"twice as {case.split}" if first.split == case.split else f"as {first.split} and as {case.split}"
            finding = f"the case {case.name} is listed {splits}"
            yield UserError(Code.CASE_DUPLICATE, root, finding, "keep one of the entries")


def missing_case(root: Path, source: Path, name: str, file: str) -> UserError:
    """Return the error for a listed case without files."""
    remedy = f"add the file, or put your own list into {root.name}"
    if source.parent == PUBLISHED:
        finding = f"case {name} is in the published list, but {file} is missing"
        return UserError(Code.FILE_MISSING, root, finding, remedy)
    return UserError(Code.FILE_MISSING, source, f"case {name} is listed, but {file} is missing", remedy)
