"""Other packages are silent inside a block, and talk again after it."""

import logging
import warnings

import pytest

from graftseg.core.progress import silence


def test_quiet(caplog: pytest.LogCaptureFixture) -> None:
    loud = logging.getLogger("loud")
    loud.setLevel(logging.INFO)
    with silence("loud", below=logging.ERROR):
        loud.warning("unheard")
        loud.error("heard")
        warnings.warn("an error elsewhere in these tests", stacklevel=1)
    loud.info("heard again")
    assert caplog.messages == ["heard", "heard again"]
    with pytest.raises(ZeroDivisionError), silence("loud", below=logging.ERROR):
        raise ZeroDivisionError
    assert loud.level == logging.INFO
