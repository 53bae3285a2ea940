"""Where a run came from: the store that it was trained on, also once both were moved."""

from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import is_store, open_store

NAME_DATA = "name a store or the folder of the scans as --data"


def trained_on(run: RunFolder, remedy: str = NAME_DATA) -> Path:
    """The store of a run: in the run, where it was, or beside the folds, seeds or baselines that the run is one of."""
    facts = run.begun()["store"]
    recorded = Path(str(facts.get("path", run.store)))
    if is_store(run.store):
        return run.store
    around = (folder / run.store.name for folder in run.path.resolve().parents[:2])
    for place in (recorded, *around):
        # what lies there now may belong to another run
        if is_store(place) and open_store(place).identity == facts["identity"]:
            return place
    raise UserError(Code.STORE_MISSING, run.path, f"its store is no longer at {recorded}", remedy)
