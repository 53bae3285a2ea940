"""Settings of the process in which tests run."""

import gc
import os
import signal
from importlib import import_module
from importlib.util import find_spec

import pytest

# only make test-web installs Playwright
collect_ignore = [] if find_spec("playwright") else ["web"]
# imported modules and collected tests stay until the end; without a pause, the garbage collector visits them often
gc.disable()
# programs that ``nohup`` starts ignore SIGHUP, but tests expect the default
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# flushing to disk takes a seventh of the time of the tests; tests of flushing replace this function
os.fsync = lambda fd: None
os.environ["OMP_NUM_THREADS"] = "1"
if os.environ.get("GRAFTSEG_TEST_GPU") != "1":
    # many tests compare bits, which only a CPU reproduces
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # without a GPU, Triton kernels run in the interpreter, which must be selected before Triton is imported
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    """Import torch and the package in processes that run tests, not in the process that distributes them."""
    is_worker, has_workers = hasattr(config, "workerinput"), config.getoption("dist", "no") != "no"
    if is_worker or not has_workers:
        config.pluginmanager.register(import_module("shared_fixtures"))


def pytest_collection_finish() -> None:
    """Enable the garbage collector again, without the objects that stay until the end."""
    gc.collect()
    gc.freeze()
    gc.enable()
