"""Tasks on a Ray cluster, which must see the folders of the command under the same paths."""

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar
from uuid import uuid4

import torch

from graftseg.core.devices import versions
from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.core.files import PARTIAL, make_folder
from graftseg.core.progress import Show, hide_progress, progress_bar
from graftseg.core.signals import stop_signals
from graftseg.core.tasks import RAY, TasksStoppedError, Work

# Ray reads these variables when it is imported: send no usage statistics
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
if "RAY_ADDRESS" not in os.environ:
    # the cluster of this process listens on 127.0.0.1 only
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
try:
    import ray
    from ray._private import worker as ray_worker
    from ray.exceptions import NodeDiedError, OutOfMemoryError, RaySystemError, WorkerCrashedError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ModuleNotFoundError as error:
    remedy = "install it with: pip install 'graftseg[ray]'"
    raise UserError(Code.PACKAGE_MISSING, "--on ray", f"the package {error.name} is not installed", remedy) from None

RETRIES = 3
"""Number of times that a task starts again after its worker died."""
STOP_SECONDS = 300.0
"""Time that running tasks have to save their state after Ctrl-C."""
LOCK_SECONDS = 120.0
"""Time after which the lock of a dead machine is released at the latest, for example by a file server."""
PROBE_SECONDS = 120.0
"""Time in which a worker must say which folders it sees."""
CONNECT_SECONDS = 10.0
POLL_SECONDS = 0.2
MAX_GROUP = 100
TASKS_PER_SLOT = 4
"""Number of groups for each task that can run at the same time, so that fast workers take more groups."""
STORE_BYTES = 256 * 2**20
"""Memory of a local cluster for results. Results are small, because tasks write files."""
SHARED = "use a folder that all machines have under the same path; object stores must be mounted"
logger = logging.getLogger(__name__)
Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def connected(on: str, cores: int | None = None) -> Iterator["RayExecutor"]:
    """Connect to a cluster inside the block. A connection that exists already is used and kept.

    ``ray`` is the cluster in the variable ``RAY_ADDRESS``, or a new cluster on this machine that ends with the block.
    ``cores`` limits the cores of a new cluster.
    """
    if ray.is_initialized():
        yield RayExecutor()
        return
    address = os.environ.get("RAY_ADDRESS", "local") if on == RAY else on
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.CRITICAL}
    if address == "local":
        options |= {"include_dashboard": False, "object_store_memory": STORE_BYTES, "_node_ip_address": "127.0.0.1"}
        options["num_cpus"] = cores
    handlers = {number: signal.getsignal(number) for number in stop_signals()}
    try:
        _check_address(address)
        ray.init(**options)
    except (OSError, RuntimeError, ValueError) as error:
        finding = f"no answer from a Ray cluster at {address} ({' '.join(str(error).split())[:200]})"
        remedy = "start it with ray start --head, and check the address and the version of Ray"
        raise UserError(Code.CLUSTER_UNREACHABLE, f"--on {on}", finding, remedy) from None
    finally:
        _handle(handlers)
    try:
        with _quiet():
            yield RayExecutor()
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Raise an OSError if nothing answers at ``HOST:PORT``. Ray would repeat its attempts for minutes."""
    host, colon, port = address.removeprefix(f"{RAY}://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()


@contextmanager
def _quiet() -> Iterator[None]:
    """Log that a task starts again. Ray would print a paragraph to stdout, which contains results only."""
    before = ray_worker.print_to_stdstream

    def report(data: dict[str, Any], ignore_prefix: bool = False) -> None:
        text = " ".join(data["lines"])
        logger.info("%s", text)
        if "will be retried" in text:
            logger.warning("a worker died, and its task starts again")

    ray_worker.print_to_stdstream = report
    try:
        yield
    finally:
        ray_worker.print_to_stdstream = before


def _handle(handlers: dict[signal.Signals, Any]) -> None:
    with suppress(ValueError):  # not the main thread
        for number, handler in handlers.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class _Setting:
    """The environment of a task: the working directory, files that it must see, and the number of threads."""

    cwd: str
    probes: tuple[str, ...]
    threads: int

    def enter(self) -> None:
        """Prepare this worker for a task."""
        if missing := self.missing():
            raise UserError(Code.FOLDER_NOT_SHARED, missing[0], "a worker does not see this folder", SHARED)
        hide_progress(True)
        torch.set_num_threads(self.threads)

    def missing(self) -> list[str]:
        """Return the paths that this worker does not see."""
        with suppress(OSError):
            os.chdir(self.cwd)
        missing = [Path(path) for path in self.probes if not Path(path).exists()]
        return [str(path.parent if path.name.startswith(PARTIAL) else path) for path in missing]


def _work(
    setting: _Setting, function: Callable[[Item], Result], item: Item
) -> tuple[Result | None, UserError | None, list[tuple[str, int, str]]]:
    """Run a task on a worker. Return its result, its error and its warnings."""
    with _collected() as messages:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                setting.enter()
                return function(item), None, messages
            except UserError as error:
                if error.code is not Code.FOLDER_LOCKED or time.monotonic() > deadline:
                    return None, error, messages
            time.sleep(1)


def _look(setting: _Setting) -> tuple[list[str], dict[str, str]]:
    """Return the paths that a worker does not see, and its versions."""
    return setting.missing(), versions()


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[tuple[str, int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append((record.name, record.levelno, record.getMessage()))


@contextmanager
def _collected() -> Iterator[list[tuple[str, int, str]]]:
    """Yield a list of the warnings of graftseg inside the block."""
    collector, package = _Collector(), logging.getLogger("graftseg")
    package.addHandler(collector)
    try:
        yield collector.messages
    finally:
        package.removeHandler(collector)


@dataclass
class RayExecutor:
    """Runs tasks on the cluster to which this process is connected."""

    workers: int | None = 1

    def choose_device(self, name: str) -> torch.device:
        """Return ``cuda`` or ``cpu``. ``auto`` is a GPU if the cluster has one. Ray assigns a GPU to each task."""
        if name not in ("auto", "cpu", "cuda"):
            finding = "names one GPU, but Ray assigns the GPUs"
            raise UserError(Code.OPTION_CONFLICT, f"--device {name}", finding, "use auto, cpu or cuda")
        if name == "auto":
            return torch.device("cuda" if any(_amount(node, "GPU") >= 1 for node in _nodes()) else "cpu")
        return torch.device(name)

    def groups(self, items: Sequence[Item], device: torch.device | None = None) -> list[list[Item]]:
        """Return groups of at most 100 items, several for each task that can run at the same time."""
        size = max(1, min(MAX_GROUP, ceil(len(items) / (TASKS_PER_SLOT * _needs(device).slots))))
        return [list(items[start : start + size]) for start in range(0, len(items), size)]

    @contextmanager
    def running(
        self, function: Callable[[Item], Result], items: Sequence[Item], work: Work
    ) -> Iterator[Sequence[Callable[[], Result]]]:
        """Start the tasks, as ``Executor.running`` describes. Ctrl-C cancels them and raises a TasksStoppedError."""
        needs = _needs(work.device)
        sizes = [len(item) if isinstance(item, list) else 1 for item in items]
        with _probes(work) as probes:
            setting = _Setting(str(Path.cwd()), probes, needs.cores)
            _check_workers(needs, setting)
            remote = ray.remote(_work).options(
                num_cpus=needs.cores, num_gpus=needs.gpus, max_retries=RETRIES, retry_exceptions=[StoppedError]
            )
            with progress_bar(work.description, sum(sizes)) as show, _stop_requests() as stops:
                shared = ray.put(function)
                refs = [remote.remote(setting, shared, item) for item in items]
                tasks = _Tasks(dict(zip(refs, sizes, strict=True)), show, stops)
                try:
                    yield [partial(tasks.result, ref) for ref in refs]
                finally:
                    tasks.cancel()


@dataclass
class _Tasks:
    """Submitted tasks and their sizes, the progress view, and the signals that asked to stop."""

    sizes: dict[Any, int]
    show: Show
    stops: list[int]
    pending: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.pending = list(self.sizes)

    def result(self, ref: Any) -> Any:
        """Wait for a task and return its result. Repeat its warnings, raise its error."""
        while not ray.wait([ref], timeout=POLL_SECONDS, fetch_local=False)[0]:
            self._look()
        self._look()
        try:
            result, error, messages = ray.get(ref)
        except (WorkerCrashedError, NodeDiedError, OutOfMemoryError) as lost:
            finding = f"the worker of a task died, also after {RETRIES} restarts ({_first_line(lost)})"
            remedy = "see the memory and the messages of the machine, then run the same command again"
            raise UserError(Code.WORKER_LOST, "--on ray", finding, remedy) from None
        except (RaySystemError, ConnectionError) as lost:
            remedy = "check the cluster, then run the same command again"
            raise UserError(Code.CLUSTER_UNREACHABLE, "--on ray", _first_line(lost), remedy) from None
        for name, level, message in messages:
            logging.getLogger(name).log(level, "%s", message)
        if error is not None:
            raise error
        return result

    def _look(self) -> None:
        """Show how much is done; cancel all tasks if a signal asked to stop."""
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
        """Cancel all tasks that have not finished, and wait until they have saved their state."""
        pending, self.pending = self.pending, []
        if not pending:
            return
        _, running = ray.wait(pending, num_returns=len(pending), timeout=0, fetch_local=False)
        for ref in running:
            ray.cancel(ref)
        left = ray.wait(running, num_returns=len(running), timeout=STOP_SECONDS)[1] if running else []
        for ref in left:
            ray.cancel(ref, force=True)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@dataclass(frozen=True)
class _Needs:
    """Cores and GPUs of a task, the nodes that have them, and the number of tasks that can run at the same time."""

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
        most = max((_amount(node, "CPU") for node in nodes), default=0)
        found = f"the largest machine of the cluster has {most} cores"
        finding = "no machine of the cluster has a GPU" if gpus else f"a task needs {cores} cores, but {found}"
        remedy = "use --device cpu" if gpus else "set OMP_NUM_THREADS to fewer threads"
        raise UserError(Code.CLUSTER_UNFIT, "--on ray", finding, f"{remedy}, or add a larger machine")
    return _Needs(cores, gpus, fitting, sum(slots.values()))


@contextmanager
def _probes(work: Work) -> Iterator[tuple[str, ...]]:
    """Write a file into each output folder inside the block. Yield these files and the inputs."""
    written: list[Path] = []
    try:
        for folder in dict.fromkeys(work.writes):
            make_folder(folder)
            written.append(folder / f"{PARTIAL}{uuid4().hex}")
            written[-1].touch()
        yield tuple(map(str, (*work.reads, *written)))
    finally:
        for path in written:
            path.unlink(missing_ok=True)


def _check_workers(needs: _Needs, setting: _Setting) -> None:
    """Raise a UserError if a machine of the cluster does not see a folder, or has another version of graftseg."""
    look = ray.remote(_look)
    refs = {}
    for node in needs.nodes:
        here = NodeAffinitySchedulingStrategy(node, soft=False)
        refs[node] = look.options(num_cpus=0, max_retries=1, scheduling_strategy=here).remote(setting)
    address = {node["NodeID"]: node["NodeManagerAddress"] for node in _nodes()}
    for node, ref in refs.items():
        where = f"worker {address.get(node, node)}"
        try:
            missing, found = ray.get(ref, timeout=PROBE_SECONDS)
        except Exception as error:
            finding = f"cannot run graftseg ({type(error).__name__}: {' '.join(str(error).split())[-200:]})"
            remedy = "install the same version of graftseg on all machines of the cluster"
            raise UserError(Code.CLUSTER_UNFIT, where, finding, remedy) from None
        if missing:
            raise UserError(Code.FOLDER_NOT_SHARED, missing[0], f"{where} does not see this folder", SHARED)
        if different := sorted(name for name, version in versions().items() if found.get(name) != version):
            finding = f"has another version of {', '.join(different)}"
            raise UserError(Code.CLUSTER_UNFIT, where, finding, "install the same versions on all machines")


@contextmanager
def _stop_requests() -> Iterator[list[int]]:
    """Collect signals that stop a command inside the block. The second signal is handled as before the block."""
    stops: list[int] = []
    before = {number: signal.getsignal(number) for number in stop_signals()}

    def request(number: int, frame: FrameType | None) -> None:
        stops.append(number)
        _handle(before)

    _handle(dict.fromkeys(before, request))
    try:
        yield stops
    finally:
        _handle(before)
