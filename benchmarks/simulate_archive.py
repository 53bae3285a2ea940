"""Simulate the prediction of an archive on workers that fail and differ in speed, and compare it with the ideal.

Scans are predicted in groups, as with ``graftseg predict --on ray``: a free worker takes the next group, and a group
whose worker fails starts again from its first scan. The command lists the archive once, before the first group, and
sends each group its scans. For comparison, every worker gets a fixed shard, in which it continues at the scan where it
stopped, after it has listed the archive again. The ideal is the work divided by the speed of all workers, without
failures, starts and waiting. Times are in seconds. Example::

    python benchmarks/simulate_archive.py --scans 1000000 --workers 64 --seconds 10
"""

import argparse
import heapq
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Archive:
    """The scans and the workers.

    The time of a scan is log-normal with the mean ``seconds`` and the standard deviation ``spread`` of its logarithm.
    Slow workers need ``slowness`` times as long. Failures of a worker come at random, on average every ``between``
    seconds. A failure is noticed after ``notice``, and the worker is back after ``repair``. Every task first needs
    ``start`` seconds, for example to load the network. Listing takes ``listing`` seconds per scan.
    """

    scans: int = 1_000_000
    workers: int = 64
    seconds: float = 10.0
    spread: float = 0.5
    slow: float = 0.05
    slowness: float = 3.0
    between: float = 24 * 3600.0
    notice: float = 30.0
    repair: float = 600.0
    start: float = 15.0
    listing: float = 0.00009
    seed: int = 0


@dataclass(frozen=True)
class Result:
    """The time until the last scan is predicted, the ideal time, and the seconds of work that failures destroyed."""

    end: float
    ideal: float
    lost: float
    failures: int

    @property
    def efficiency(self) -> float:
        """The ideal time divided by the time."""
        return self.ideal / self.end


class Workers:
    """The speeds of the workers and the times of their failures."""

    def __init__(self, archive: Archive) -> None:
        self.archive, self.random = archive, np.random.default_rng((archive.seed, 1))
        count = round(archive.slow * archive.workers)
        self.factors = np.where(np.arange(archive.workers) < count, archive.slowness, 1.0)
        self.fails_at = self.random.exponential(archive.between, archive.workers)

    def renew(self, worker: int, now: float) -> None:
        """Draw the next failure of a worker that works again."""
        self.fails_at[worker] = now + self.random.exponential(self.archive.between)


def scan_seconds(archive: Archive) -> npt.NDArray[np.float64]:
    """Return the time of every scan on a fast worker."""
    logarithms = np.random.default_rng((archive.seed, 0)).normal(0, archive.spread, archive.scans)
    return np.asarray(archive.seconds * np.exp(logarithms - archive.spread**2 / 2))


def ideal(archive: Archive, work: float) -> float:
    """Return the time without failures, starts and waiting."""
    return work / float((1 / Workers(archive).factors).sum())


def groups(archive: Archive, size: int) -> Result:
    """Simulate groups of ``size`` scans, which free workers take."""
    seconds, workers = scan_seconds(archive), Workers(archive)
    work = [float(part.sum()) for part in np.split(seconds, range(size, len(seconds), size))]
    waiting = [(0.0, number) for number in range(len(work))]  # time from which a group can start, and its number
    free = [(archive.listing * archive.scans, worker) for worker in range(archive.workers)]
    end = lost = 0.0
    failures = 0
    while waiting:
        known, number = heapq.heappop(waiting)
        freed, worker = heapq.heappop(free)
        begin = max(known, freed)
        if workers.fails_at[worker] <= begin:  # the worker failed while it had no task
            back = max(begin, workers.fails_at[worker] + archive.repair)
            workers.renew(worker, back)
            heapq.heappush(waiting, (known, number))
            heapq.heappush(free, (back, worker))
            continue
        done = begin + archive.start + work[number] * workers.factors[worker]
        if (failed := workers.fails_at[worker]) < done:
            failures, lost = failures + 1, lost + failed - begin
            heapq.heappush(waiting, (failed + archive.notice, number))
            heapq.heappush(free, (failed + archive.repair, worker))
            workers.renew(worker, failed + archive.repair)
            continue
        heapq.heappush(free, (done, worker))
        end = max(end, done)
    return Result(end, ideal(archive, float(seconds.sum())), lost, failures)


def shards(archive: Archive) -> Result:
    """Simulate a fixed shard for each worker, which continues at the scan where it failed."""
    seconds, workers, start = scan_seconds(archive), Workers(archive), archive.start + archive.listing * archive.scans
    end = lost = 0.0
    failures = 0
    for worker in range(archive.workers):
        times = np.cumsum(seconds[worker :: archive.workers]) * workers.factors[worker]
        now, done = start, 0.0
        while (left := float(times[-1]) - done) > 0:
            if (failed := workers.fails_at[worker]) >= now + left:
                now += left
                break
            index = int(np.searchsorted(times, done + max(0.0, failed - now), side="right"))
            kept = float(times[index - 1]) if index else 0.0
            failures, lost = failures + 1, lost + max(0.0, failed - now) - max(0.0, kept - done)
            done = max(done, kept)
            now = failed + archive.repair + start
            workers.renew(worker, failed + archive.repair)
        end = max(end, now)
    return Result(end, ideal(archive, float(seconds.sum())), lost, failures)


def main() -> None:
    """Print a row per group size, and one for shards."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in vars(Archive()).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    archive = Archive(**vars(parser.parse_args()))
    healthy = replace(archive, slow=0.0, between=float("inf"))
    print(f"{archive}\n{'':14} {'hours':>8} {'ideal':>8} {'efficiency':>10} {'failures':>8} {'lost hours':>10}")
    rows = {f"groups of {size}": groups(archive, size) for size in (1, 10, 100, 1000) if size <= archive.scans}
    rows |= {"fixed shards": shards(archive), "healthy, 100": groups(healthy, 100), "healthy shards": shards(healthy)}
    for name, result in rows.items():
        hours = f"{result.end / 3600:8.2f} {result.ideal / 3600:8.2f} {result.efficiency:10.3f}"
        print(f"{name:14} {hours} {result.failures:8d} {result.lost / 3600:10.2f}")


if __name__ == "__main__":
    main()
