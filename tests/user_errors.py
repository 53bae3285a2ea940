"""Assertions about user errors: code, place and a keyword, never a whole sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from graftseg.core.errors import Code, UserError


@contextmanager
def user_error(code: Code, where: str | Path = "", keyword: str = "") -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Expect a UserError with this code, whose location contains ``where`` and whose text contains ``keyword``."""
    with pytest.raises(UserError) as caught:
        yield caught
    error = caught.value
    assert error.code == code, f"{error.code}: {error}"
    assert str(where) in error.where, error
    assert keyword in f"{error.finding}; {error.remedy}", error
