"""The scans that are passed when a run is resumed, compared with the scans that the run was started with."""

import logging
from dataclasses import replace

from graftseg.core.errors import Code, UserError, in_one_line
from graftseg.core.names import nfc
from graftseg.core.run_folder import RunFolder
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import first_change
from graftseg.data.sources import Data
from graftseg.data.store import Store
from graftseg.recipes.recipe import Recipe

logger = logging.getLogger(__name__)


def check_resumed_scans(recipe: Recipe, data: Data, run: RunFolder, store: Store) -> None:
    """Warn if the scans differ from the store of a run. Raise a UserError if none of them is in the store."""
    where = in_one_line(str(run.path))
    try:
        layout = read_layout(data)
        dataset = layout.for_training(*recipe.batches.role_limits)
        if recipe.selection.reads_test_labels:
            dataset = replace(dataset, cases=dataset.cases + layout.of("test"))
        change = first_change(dataset, run.store, recipe.data, store.root)
    except (UserError, OSError) as error:
        logger.warning("%s: training continues with the store of the run, because of an error: %s", where, error)
        return
    if {nfc(case.name) for case in store.cases}.isdisjoint(nfc(case.name) for case in layout.cases):
        finding, remedy = f"the run {run.path} was started with other scans", "pass the same --data or another --out"
        raise UserError(Code.RUN_MISMATCH, layout.root, finding, remedy)
    if dataset.problems:
        problem = dataset.problems[0]
        logger.warning("%s: training continues with the store of the run, because of an error: %s", where, problem)
    elif change:
        finding = f"training continues with the store of the run, which differs from the scans ({change})"
        logger.warning("%s: %s; to use the scans as they are now, train into another folder", where, finding)
