"""Other packages, kept from talking."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(*packages: str, below: int) -> Iterator[None]:
    """No warnings, and of these packages no lines in a log under a level, for as long as the block lasts."""
    loggers = [logging.getLogger(name) for name in packages]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(below)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
