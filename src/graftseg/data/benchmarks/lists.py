"""The lists of cases that papers share: those in a folder, or the published ones where it has none."""

from collections.abc import Iterable
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case
from graftseg.data.folders import visible_entries

PUBLISHED = Path(__file__).parent / "lists"


def find_list(root: Path, *names: str) -> Path | None:
    """The list in a folder or in one of its subfolders; of several names the first that is there."""
    places = [root, *(path for path in visible_entries(root) if path.is_dir())]
    for name in names:
        found = [place / name for place in places if _is_there(place / name)]
        if found and found[0].parent != root and len(found) > 1:
            finding = f"there are two lists {name}, in {found[0].parent.name} and {found[1].parent.name}"
            raise UserError(Code.BENCHMARK_MISMATCH, root, finding, f"keep one, or put the right one into {root.name}")
        if found:
            return found[0]
    return None


def _is_there(path: Path) -> bool:
    """Also a broken link is: the published list must not stand in for one that cannot be read."""
    return path.is_file() or path.is_symlink()


def read_list(path: Path) -> list[str]:
    """The entries of a list, one a line; empty lines are none, and a mark at its begin is no part of an entry."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            Code.BENCHMARK_MISMATCH, path, f"the list cannot be read ({error})", "restore the file or remove it"
        ) from None
    entries = [line.strip() for line in lines if line.strip()]
    if not entries:
        raise UserError(
            Code.BENCHMARK_MISMATCH,
            path,
            "the list is empty",
            "restore the file or remove it: the published list is then used",
        )
    return entries


def entries_of(root: Path, published: str, *names: str) -> tuple[Path, list[str]]:
    """A folder's own list with its entries, or else the published one."""
    path = find_list(root, *names) or PUBLISHED / published
    return path, read_list(path)


def repeated(root: Path, cases: Iterable[Case]) -> list[UserError]:
    """A case that stands twice in the lists, or in two of them, where it would leak."""
    seen: dict[str, Case] = {}
    problems = []
    for case in cases:
        first = seen.setdefault(case.name, case)
        if first is not case:
            places = f"twice among the {case.split}" if first.split == case.split else f"{first.split} and {case.split}"
            finding = f"the lists name the case {case.name} {places}"
            problems.append(UserError(Code.BENCHMARK_MISMATCH, root, finding, "keep one of the entries"))
    return problems


def absent(root: Path, source: Path, name: str, file: str) -> UserError:
    """A case that a list names and the folder lacks."""
    remedy = f"add it, or put a list of your own into {root.name}"
    if source.parent == PUBLISHED:
        return UserError(
            Code.FILE_MISSING, root, f"case {name} is in the published list and {file} is not there", remedy
        )
    return UserError(Code.FILE_MISSING, source, f"case {name} is listed and {file} is not there", remedy)
