"""One test over many shipped files: a loop that reports all failures, cheaper than one test per file."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., None]


def for_each(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Call a test with every value of an argument (or tuple of arguments); fail once, listing every failure."""
    arguments = (names,) if isinstance(names, str) else names
    rows = [(value,) if isinstance(names, str) else tuple(value) for value in values]
    assert rows, f"nothing to loop over for {names}"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def loop(**fixtures: Any) -> None:
            failures = []
            for row in rows:
                try:
                    test(**dict(zip(arguments, row, strict=True)), **fixtures)
                except Exception as error:
                    failures.append(f"{row[0]}: {type(error).__name__}: {error}")
            assert not failures, f"{len(failures)} of {len(rows)} failed:\n" + "\n".join(failures)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        vars(loop)["__signature__"] = signature.replace(parameters=kept)
        return loop

    return decorate
