"""The stores that the rows of a table are trained and tested on, one for each data set."""

from collections.abc import Mapping
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.data.store import Store, is_store, open_store

Stores = str | Path | Mapping[str, str | Path] | None
"""A store, or stores by the name of their data set."""


def stores_of(data: Stores, needed: set[str]) -> dict[str, Store]:
    """The store of each data set that is needed."""
    given = _named(data, needed)
    if missing := sorted(needed - given.keys()):
        finding = f"the rows need {len(needed)} data set{'s' if len(needed) > 1 else ''}, and the store of "
        wanted = " ".join(f"--data {name}=STORE" for name in sorted(needed))
        raise UserError(
            Code.STORE_MISMATCH, "--data", f"{finding}{' and '.join(missing)} is not named", f"name it: {wanted}"
        )
    for name in sorted(needed):
        if not is_store(given[name]):
            raise UserError(
                Code.STORE_MISSING,
                given[name],
                "not a prepared store",
                f"make it with graftseg prepare --benchmark {name}",
            )
    return {name: open_store(given[name]) for name in needed}


def _named(data: Stores, needed: set[str]) -> dict[str, Path]:
    """Stores by the name of their data set; one without a name is that of the only data set that is needed."""
    if isinstance(data, Mapping):
        return {name: Path(path) for name, path in data.items()}
    return dict.fromkeys(needed, Path(data)) if data is not None and len(needed) == 1 else {}
