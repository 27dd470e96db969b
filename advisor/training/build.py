"""Build a corpus: search the scenarios that a store lacks, and keep each record as soon as it is there."""

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TypeVar

from ...compiler.ir import Progress, ShouldStop
from ..work.on_dask import CONNECT_S, BackendError, as_ended, result_at
from ..work.pools import open_processes
from ..work.processes import ProcessDied
from ..work.workers import Failure, FailureKind, failed_simulation
from .families import Drawn, draw
from .record import Record, key_of, record_of
from .store import CorpusStore, UnsoundError

Item = TypeVar("Item")
Found = TypeVar("Found")

OTHER_VERSION = "its worker has another version of Magus"
DIED = "its process died, perhaps for want of memory"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS")
"""How many threads the libraries of a process have, read when they are imported."""

Make = Callable[[Drawn], Record]
"""Searches a scenario: ``record_of``."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The record of scenario ``idx`` with its key, or why there is none."""

    idx: int
    found: Record | Failure
    key: str = ""
    seconds: float = 0.0


Task = Callable[[int], Attempt]
"""Makes the attempt at the scenario of an index; can be sent to other processes."""

Backend = Callable[[Task, Sequence[int]], Generator[Attempt, None, None]]
"""Does a task for each index somewhere and yields attempts as they end, in any order; closed, it ends what it began."""


def attempt(make: Make, seed: int, idx: int) -> Attempt:
    """Search scenario ``idx`` of a seed in this process; a failure is a result, so that the others go on."""
    started = perf_counter()
    try:
        drawn = draw(seed, idx)
        return Attempt(idx, make(drawn), key_of(drawn), perf_counter() - started)
    except Exception as error:
        return Attempt(idx, failed_simulation(scenario_name(idx), error))


def failed_for(idx: int, reason: str) -> Failure:
    """Return the failure of a scenario for a reason that is not in the scenario, such as a process that died."""
    return Failure(scenario_name(idx), FailureKind.ILLEGAL, reason)


def scenario_name(idx: int) -> str:
    """Return the name of a scenario in messages."""
    return f"scenario {idx}"


def on_this_machine(workers: int) -> Backend:
    """Return the backend of ``workers`` processes, of one thread each; one worker is this process."""

    def run(task: Task, indices: Sequence[int]) -> Generator[Attempt, None, None]:
        return results_here(workers, task, indices, lambda idx: Attempt(idx, failed_for(idx, DIED)))

    return run


def on_dask(address: str, connect_s: float = CONNECT_S) -> Backend:
    """Return the backend of the workers of the scheduler at ``address``, such as ``tcp://host:8786``.

    Its searches raise ``BackendError`` if dask is not installed, if the scheduler or its workers do not answer, and if
    the scheduler is lost.
    """
    return partial(_run_there, address, connect_s)


def _run_there(address: str, connect_s: float, task: Task, indices: Sequence[int]) -> Generator[Attempt, None, None]:
    with closing(as_ended(address, task, indices, connect_s)) as ended:
        for idx, future in ended:
            try:
                found = result_at(address, future)
            except BackendError:
                raise
            except ProcessDied as error:
                found = Attempt(idx, failed_for(idx, str(error)))
            except Exception as error:  # beyond what a search itself reports: a worker without Magus
                found = Attempt(idx, failed_for(idx, f"{type(error).__name__}: {error}"))
            yield found if isinstance(found, Attempt) else Attempt(idx, failed_for(idx, OTHER_VERSION))


def results_here(
    workers: int, task: Callable[[Item], Found], items: Iterable[Item], died: Callable[[Item], Found] | None = None
) -> Generator[Found, None, None]:
    """Yield the results of ``task`` for all ``items`` from ``workers`` processes, in the order in which they end.

    One whose process dies has the result ``died``. Closed, it ends all.

    Raises
    ------
    ProcessDied
        If a process ends before it has a result, and ``died`` is None.
    """
    if workers == 1:
        yield from map(task, items)
        return
    with _one_thread_each(), open_processes(workers) as submit:
        begun = {submit(partial(_done, task), item): item for item in items}
        for future in as_completed(begun):
            try:
                found = future.result()
            except ProcessDied:
                if died is None:
                    raise
                found = died(begun[future])
            yield found


def _done(task: Callable[[Item], Found], item: Item, _: ShouldStop) -> Found:
    """In a process, which is ended where it is no longer wanted."""
    return task(item)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Have libraries of the processes that are spawned in the block use one thread each; those here have theirs."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build did: of ``scenarios`` asked for, ``stored`` are now in the store, and ``new`` came in this time.

    ``runs`` and ``patterns`` count the simulated plans and the patterns of those stored; ``others`` are scenarios in
    the store that another version of the engine searched. ``seconds`` is wall time.
    """

    seed: int
    scenarios: int
    stored: int
    new: int
    failures: tuple[Failure, ...]
    runs: int
    patterns: tuple[tuple[str, int], ...]
    others: int
    seconds: float
    interrupted: bool

    @property
    def per_minute(self) -> float:
        """New scenarios a minute."""
        return 60 * self.new / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is known of a scenario before it is searched."""

    key: str
    pattern: str


def build_corpus(
    store: CorpusStore,
    seed: int,
    count: int,
    run: Backend,
    progress: Progress | None = None,
    make: Make = record_of,
) -> BuildReport:
    """Search those of the scenarios 0 to ``count - 1`` of a seed that ``store`` lacks; Ctrl-C ends it early.

    Raises
    ------
    StoreError
        If the store cannot be read or written.
    BackendError
        If ``run`` cannot search at all, or no longer. What was stored by then stays.
    """
    started, report = perf_counter(), progress or (lambda stage, done, total: None)
    wanted = _wanted(seed, count, report)
    known = store.keys(seed)
    missing = [idx for idx, one in wanted.items() if one.key not in known]
    num_known, failures, interrupted = count - len(missing), list[Failure](), False
    try:
        report("corpus", num_known, count)
        if missing:
            with closing(run(partial(attempt, make, seed), missing)) as attempts:
                for num_ended, ended in enumerate(attempts, 1):
                    failures.extend(_kept(store, ended, wanted[ended.idx].key))
                    report("corpus", num_known + num_ended, count)
    except KeyboardInterrupt:
        interrupted = True
    known = store.keys(seed)
    stored = [one for one in wanted.values() if one.key in known]
    return BuildReport(
        seed=seed,
        scenarios=count,
        stored=len(stored),
        new=len(stored) - num_known,
        failures=tuple(failures),
        runs=store.num_runs(one.key for one in stored),
        patterns=tuple(sorted(Counter(one.pattern for one in stored).items())),
        others=store.num_of_others(),
        seconds=perf_counter() - started,
        interrupted=interrupted,
    )


def _wanted(seed: int, count: int, report: Progress) -> dict[int, _Wanted]:
    wanted = {}
    for idx in range(count):
        report("draw", idx, count)
        drawn = draw(seed, idx)
        wanted[idx] = _Wanted(key_of(drawn), drawn.family.pattern)
    return wanted


def _kept(store: CorpusStore, ended: Attempt, key: str) -> tuple[Failure, ...]:
    """Keep the record of an attempt; return why it is not kept, nothing if it is."""
    if isinstance(ended.found, Failure):
        return (ended.found,)
    if ended.key != key:
        return (failed_for(ended.idx, OTHER_VERSION),)
    try:
        store.add(key, ended.found, ended.seconds)
    except UnsoundError as error:
        return (Failure(scenario_name(ended.idx), FailureKind.FAULT, str(error)),)
    return ()


def records_of(store: CorpusStore, seed: int) -> Iterator[tuple[Drawn, Record]]:
    """Yield the records of a seed with their scenarios, in order, one at a time.

    A record is left out if its scenario is drawn differently today.
    """
    for idx in store.indices(seed):
        drawn = draw(seed, idx)
        record = store.record(key_of(drawn))
        if record is not None:
            yield drawn, record
