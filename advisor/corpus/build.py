"""Build a corpus: search the scenarios that a store lacks, and keep each record as soon as it is there."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from ...compiler.ir import Progress
from ..failures import Failure, FailureKind
from .families import Drawn, draw
from .keys import key_of
from .record import Record, record_of
from .searches import OTHER_VERSION, Attempt, Backend, Make, attempt, failed_for, scenario_name
from .store import CorpusStore, UnsoundError


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
