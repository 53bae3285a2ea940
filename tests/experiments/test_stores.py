"""Every data set that the rows need has its store."""

from pathlib import Path

import pytest

from graftseg.core.errors import UserError
from graftseg.data.store import Store
from sweep_fakes import Sweeper


def test_every_data_set_has_its_store(sweeper: Sweeper, store: Store, tmp_path: Path) -> None:
    only = ("la-4/bcp", "acdc-3/bcp")
    for data in (None, store.path, {"la": store.path}):
        with pytest.raises(
            UserError, match=r"store of (acdc and la|acdc) is not named; name it: --data acdc=STORE --d"
        ):
            sweeper("directions", *only, data=data)
    with pytest.raises(UserError, match=r"nothing: not a prepared store; make it with graftseg prepare --benchmark la"):
        sweeper("directions", *only, data={"la": tmp_path / "nothing", "acdc": store.path})
    assert not sweeper.runs.exists()
    assert len(sweeper("directions", *only, data={"la": store.path, "acdc": str(store.path)}).recorded) == 2
