"""Tasks on a Ray cluster. All machines must have the folders of the command under the same paths."""

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from logging.handlers import BufferingHandler
from math import ceil
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4
from warnings import catch_warnings

import torch

from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.core.files import PARTIAL, make_folder
from graftseg.core.packages import install_extra
from graftseg.core.progress import Show, hide_progress, progress_bar
from graftseg.core.ray_address import ADDRESS_VARIABLE, check_cluster, cluster_address
from graftseg.core.signals import handling_signals, install_handlers, stop_signals
from graftseg.core.software import versions
from graftseg.core.tasks import Item, Result, Results, Task, TasksStoppedError, Work

# Ray reads these variables when it is imported: send no usage statistics
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
if not os.environ.get(ADDRESS_VARIABLE):
    # if this process starts a cluster, the cluster listens only on 127.0.0.1
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
try:
    import ray
    from ray._private import worker as ray_worker
    from ray.exceptions import NodeDiedError, OutOfMemoryError, RaySystemError, WorkerCrashedError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ModuleNotFoundError as error:
    finding = f"the package {error.name} is not installed"
    raise UserError(Code.PACKAGE_MISSING, "--on ray", finding, install_extra("ray")) from None

RETRIES = 3  # number of times that a task starts again if its worker dies
STOP_SECONDS = 300.0  # time in which running tasks must save their state after Ctrl-C
LOCK_SECONDS = 120.0
"""Time that a task waits for a lock. A file server may release the lock of a dead machine with a delay."""
PROBE_SECONDS = 120.0  # time in which a worker must report its folders and versions
POLL_SECONDS = 0.2
MAX_GROUP = 100  # items
TASKS_PER_SLOT = 4
"""Number of groups per slot, so that fast workers take more groups. A cluster with N slots runs N tasks at a time."""
STORE_BYTES = 256 * 2**20  # Memory of a local cluster for results. Results are small, because tasks write files.
SHARED_REMEDY = "use a folder that all machines have under the same path; object stores must be mounted"
logger = logging.getLogger(__name__)
LogMessage = tuple[str, int, str]  # name of the logger, level and text
_restarts = count(1)  # numbers of the restarts of tasks


@contextmanager
def connected(on: str, cores: int | None = None) -> Iterator["RayExecutor"]:
    """Connect to a cluster inside the block, or use the existing connection of this process.

    ``on`` is the address of a cluster, or ``ray`` for the cluster in the environment variable ``RAY_ADDRESS``. Without
    this variable, ``ray`` starts a cluster of ``cores`` cores on this machine, which ends with the block.
    """
    if ray.is_initialized():
        yield RayExecutor()
        return
    address = cluster_address(on)
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.CRITICAL}
    if address == "local":
        options |= {"include_dashboard": False, "object_store_memory": STORE_BYTES, "_node_ip_address": "127.0.0.1"}
        options["num_cpus"] = cores
    handlers = {number: signal.getsignal(number) for number in stop_signals()}
    try:
        check_cluster(address)
        with catch_warnings(action="ignore"):  # the error below contains their text
            ray.init(**options)
    except (OSError, RuntimeError, ValueError) as error:
        finding = f"no answer from a Ray cluster at {address} ({' '.join(str(error).split())[:200]})"
        remedy = "start it with ray start --head, and check the address, the token and the version of Ray"
        raise UserError(Code.CLUSTER_UNREACHABLE, f"--on {on}", finding, remedy) from None
    finally:
        install_handlers(handlers)
    try:
        with _quiet():
            yield RayExecutor()
    finally:
        ray.shutdown()


@contextmanager
def _quiet() -> Iterator[None]:
    """Send messages of Ray to the log inside the block. Ray would print them to stdout, which is only for results."""
    original = ray_worker.print_to_stdstream

    def report(data: dict[str, Any], ignore_prefix: bool = False) -> None:
        text = " ".join(data["lines"])
        logger.info("%s", text)
        if "will be retried" in text:
            # the number makes every warning different, because repeated warnings are not shown
            logger.warning("a worker died, and its task starts again (restart %d)", next(_restarts))

    ray_worker.print_to_stdstream = report
    try:
        yield
    finally:
        ray_worker.print_to_stdstream = original


@dataclass(frozen=True)
class _Environment:
    """What a task needs on its worker: working directory, paths that the worker must see, and number of threads."""

    cwd: str
    paths: tuple[str, ...]
    threads: int

    def enter(self) -> list[str]:
        """Change to the working directory. Return the paths that are missing on this worker.

        A temporary file shows whether the worker sees an output folder. If the file is missing, return the folder.
        """
        with suppress(OSError):
            os.chdir(self.cwd)
        missing = [Path(path) for path in self.paths if not Path(path).exists()]
        return [str(path.parent if path.name.startswith(PARTIAL) else path) for path in missing]


def _run_task(
    environment: _Environment, function: Task[Item, Result], item: Item
) -> tuple[Result | None, UserError | None, list[LogMessage]]:
    """Run a task on a worker. Return its result, its error and its warnings."""
    package, collector = logging.getLogger("graftseg"), BufferingHandler(sys.maxsize)
    collector.setLevel(logging.WARNING)
    package.addHandler(collector)
    try:
        result, error = _attempt(environment, function, item)
    finally:
        package.removeHandler(collector)
    return result, error, [(record.name, record.levelno, record.getMessage()) for record in collector.buffer]


def _attempt(
    environment: _Environment, function: Task[Item, Result], item: Item
) -> tuple[Result | None, UserError | None]:
    """Return the result or the error of a task. While its folder is locked, wait for at most ``LOCK_SECONDS``."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            if missing := environment.enter():
                raise UserError(Code.FOLDER_NOT_SHARED, missing[0], "a worker does not see this folder", SHARED_REMEDY)
            hide_progress(True)
            torch.set_num_threads(environment.threads)
            return function(item), None
        except UserError as error:
            if error.code is not Code.FOLDER_LOCKED or time.monotonic() > deadline:
                return None, error
        time.sleep(1)


def _inspect_worker(environment: _Environment) -> tuple[list[str], dict[str, str]]:
    return environment.enter(), versions()


@dataclass
class RayExecutor:
    """Runs tasks on the cluster to which this process is connected."""

    workers: int | None = 1

    def choose_device(self, name: str) -> torch.device:
        """Return ``cuda`` or ``cpu``; ``auto`` is ``cuda`` if the cluster has a GPU. Ray assigns a GPU to each task."""
        if name not in ("auto", "cpu", "cuda"):
            finding = "names one GPU, but Ray assigns the GPUs"
            raise UserError(Code.OPTION_CONFLICT, f"--device {name}", finding, "use auto, cpu or cuda")
        if name == "auto":
            return torch.device("cuda" if any(_amount(node, "GPU") >= 1 for node in _nodes()) else "cpu")
        return torch.device(name)

    def groups(self, items: Sequence[Item], device: torch.device | None = None) -> list[list[Item]]:
        """Divide the items into groups of at most ``MAX_GROUP`` items, about ``TASKS_PER_SLOT`` groups per slot."""
        size = max(1, min(MAX_GROUP, ceil(len(items) / (TASKS_PER_SLOT * _needs(device).slots))))
        return [list(items[start : start + size]) for start in range(0, len(items), size)]

    @contextmanager
    def running(self, function: Task[Item, Result], items: Sequence[Item], work: Work) -> Iterator[Results[Result]]:
        """Start the tasks, as ``Executor.running`` describes. Ctrl-C cancels them and raises a TasksStoppedError."""
        needs = _needs(work.device)
        sizes = [len(item) if isinstance(item, list) else 1 for item in items]
        with _paths_to_see(work) as paths:
            environment = _Environment(str(Path.cwd()), paths, needs.cores)
            _check_workers(needs, environment)
            remote = ray.remote(_run_task).options(
                num_cpus=needs.cores, num_gpus=needs.gpus, max_retries=RETRIES, retry_exceptions=[StoppedError]
            )
            with progress_bar(work.description, sum(sizes)) as show, _stop_requests() as stops:
                shared = ray.put(function)
                refs = [remote.remote(environment, shared, item) for item in items]
                tasks = _Tasks(dict(zip(refs, sizes, strict=True)), show, stops)
                try:
                    yield [partial(tasks.result, ref) for ref in refs]
                finally:
                    tasks.cancel()


@dataclass
class _Tasks:
    """Submitted tasks with their numbers of items (``sizes``), and received signals that stop a command (``stops``)."""

    sizes: dict[Any, int]
    show: Show
    stops: list[int]
    pending: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.pending = list(self.sizes)

    def result(self, ref: Any) -> Any:
        """Wait for a task and return its result. Log its warnings and raise its error in this process."""
        while not ray.wait([ref], timeout=POLL_SECONDS, fetch_local=False)[0]:
            self._update()
        self._update()
        try:
            result, error, warnings = ray.get(ref)
        except (WorkerCrashedError, NodeDiedError, OutOfMemoryError) as lost:
            finding = f"the worker of a task died, even after {RETRIES} restarts ({_first_line(lost)})"
            remedy = "check the memory and the log of the machine, then run the same command again"
            raise UserError(Code.WORKER_LOST, "--on ray", finding, remedy) from None
        except (RaySystemError, ConnectionError) as lost:
            remedy = "check the cluster, then run the same command again"
            raise UserError(Code.CLUSTER_UNREACHABLE, "--on ray", _first_line(lost), remedy) from None
        for name, level, message in warnings:
            logging.getLogger(name).log(level, "%s", message)
        if error is not None:
            raise error
        return result

    def _update(self) -> None:
        """Show the progress. If a signal was received, cancel all tasks and raise a TasksStoppedError."""
        if self.stops:
            finished = len(self.sizes) - len(self.pending)
            self.cancel()
            raise TasksStoppedError(self.stops[0], finished, len(self.sizes))
        if self.pending:
            _, self.pending = ray.wait(self.pending, num_returns=len(self.pending), timeout=0, fetch_local=False)
        total = sum(self.sizes.values())
        done = total - sum(self.sizes[ref] for ref in self.pending)
        self.show(done, f"{done} of {total}")

    def cancel(self) -> None:
        """Cancel all tasks that have not finished, and wait until they have saved their state.

        Tasks that are still running after ``STOP_SECONDS`` are killed.
        """
        pending, self.pending = self.pending, []
        if not pending:
            return
        _, running = ray.wait(pending, num_returns=len(pending), timeout=0, fetch_local=False)
        for ref in running:
            ray.cancel(ref)
        still_running = ray.wait(running, num_returns=len(running), timeout=STOP_SECONDS)[1] if running else []
        for ref in still_running:
            ray.cancel(ref, force=True)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@dataclass(frozen=True)
class _Needs:
    """Cores and GPUs of a task, the machines that can run it, and the number of tasks that can run at the same time."""

    cores: int
    gpus: int
    nodes: tuple[str, ...]
    slots: int


def _nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _amount(node: dict[str, Any], resource: str) -> int:
    return int(node["Resources"].get(resource, 0))


def _needs(device: torch.device | None) -> _Needs:
    """Return what a task needs; raise a UserError if no machine of the cluster has it.

    On a CPU, a task takes as many cores as this process has threads, because results depend on their number. On a GPU,
    a task takes one GPU, and its share of the cores of the machine.
    """
    nodes, gpus = _nodes(), int(device is not None and device.type == "cuda")
    if gpus:
        shares = [_amount(node, "CPU") // _amount(node, "GPU") for node in nodes if _amount(node, "GPU")]
        cores = max(1, min(shares, default=1))
    else:
        cores = 1 if device is None else torch.get_num_threads()
    slots = {
        node["NodeID"]: min(_amount(node, "CPU") // cores, _amount(node, "GPU") if gpus else _amount(node, "CPU"))
        for node in nodes
    }
    fitting = tuple(name for name, count in slots.items() if count)
    if not fitting:
        largest = max((_amount(node, "CPU") for node in nodes), default=0)
        finding = f"a task needs {cores} cores, but the largest machine of the cluster has {largest} cores"
        remedy = "set OMP_NUM_THREADS to fewer threads, or add a larger machine"
        if gpus:
            finding, remedy = "no machine of the cluster has a GPU", "use --device cpu, or add a machine with a GPU"
        raise UserError(Code.CLUSTER_UNFIT, "--on ray", finding, remedy)
    return _Needs(cores, gpus, fitting, sum(slots.values()))


@contextmanager
def _paths_to_see(work: Work) -> Iterator[tuple[str, ...]]:
    """Yield paths that all workers must see: the inputs, and a temporary file in each output folder."""
    temporary: list[Path] = []
    try:
        for folder in dict.fromkeys(work.writes):
            make_folder(folder)
            temporary.append(folder / f"{PARTIAL}{uuid4().hex}")
            temporary[-1].touch()
        yield tuple(map(str, (*work.reads, *temporary)))
    finally:
        for path in temporary:
            path.unlink(missing_ok=True)


def _check_workers(needs: _Needs, environment: _Environment) -> None:
    """Raise a UserError if a machine of the cluster does not see a folder, or has other versions of the software."""
    inspect = ray.remote(_inspect_worker)
    refs = {}
    for node in needs.nodes:
        placement = NodeAffinitySchedulingStrategy(node, soft=False)
        refs[node] = inspect.options(num_cpus=0, max_retries=1, scheduling_strategy=placement).remote(environment)
    address = {node["NodeID"]: node["NodeManagerAddress"] for node in _nodes()}
    for node, ref in refs.items():
        where = f"worker {address.get(node, node)}"
        try:
            missing, worker_versions = ray.get(ref, timeout=PROBE_SECONDS)
        except Exception as error:
            finding = f"cannot run graftseg ({type(error).__name__}: {' '.join(str(error).split())[-200:]})"
            remedy = "install the same version of graftseg on all machines of the cluster"
            raise UserError(Code.CLUSTER_UNFIT, where, finding, remedy) from None
        if missing:
            raise UserError(Code.FOLDER_NOT_SHARED, missing[0], f"{where} does not see this folder", SHARED_REMEDY)
        if different := sorted(name for name, version in versions().items() if worker_versions.get(name) != version):
            finding = f"has another version of {', '.join(different)}"
            raise UserError(Code.CLUSTER_UNFIT, where, finding, "install the same versions on all machines")


@contextmanager
def _stop_requests() -> Iterator[list[int]]:
    """Yield a list that receives the first stop signal inside the block. The previous handlers get further signals."""
    stops: list[int] = []

    def request(number: int, frame: FrameType | None) -> None:
        stops.append(number)
        install_handlers(previous)

    with handling_signals(request) as previous:
        yield stops
