"""Prepare LA or ACDC with scored cases from the training data, to develop methods without the test cases.

``python benchmarks/shadow_splits.py la|acdc SOURCE STORE``. SOURCE is the folder of the published files. Recipes such
as ``la-4/bcp`` can be trained and tested with the store.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import graftseg

LA_FOLDER, ACDC_FOLDER = "2018LA_Seg_Training Set", "data"
TWIN = "patient901"
"""Name of a copy of a scored patient. It is the validation patient, because the list must not be empty."""


def write_la(source: Path, out: Path) -> None:
    """Write lists with the entries 41 to 48 of the training list first, and with the entries 61 to 80 as test cases."""
    (out / LA_FOLDER).symlink_to((source / LA_FOLDER).resolve(), target_is_directory=True)
    names = _read_list(source / "train.list")
    _write_list(out / "train.list", [*names[40:48], *names[:40], *names[48:60]])
    _write_list(out / "test.list", names[60:80])


def write_acdc(source: Path, out: Path) -> None:
    """Write lists with the published training patients, and with the validation patients as test cases."""
    train, scored = (_read_list(source / f"{name}.list") for name in ("train", "val"))
    twins = [f"{TWIN}_{name.partition('_')[2]}" for name in scored[:2]]
    (out / ACDC_FOLDER).mkdir()
    files = dict(zip([*train, *scored, *twins], [*train, *scored, *scored[:2]], strict=True))
    for name, original in files.items():
        (out / ACDC_FOLDER / f"{name}.h5").symlink_to((source / ACDC_FOLDER / f"{original}.h5").resolve())
    for split, names in (("train", train), ("val", twins), ("test", scored)):
        _write_list(out / f"{split}.list", names)


WRITERS: dict[str, Callable[[Path, Path], None]] = {"la": write_la, "acdc": write_acdc}


def _read_list(path: Path) -> list[str]:
    return path.read_text().split()


def _write_list(path: Path, names: Sequence[str]) -> None:
    path.write_text("".join(f"{name}\n" for name in names))


def main() -> None:
    """Prepare one store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=WRITERS)
    parser.add_argument("source", type=Path)
    parser.add_argument("store", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        WRITERS[arguments.name](arguments.source, Path(folder))
        graftseg.prepare(folder, arguments.store, benchmark=arguments.name)


if __name__ == "__main__":
    main()
