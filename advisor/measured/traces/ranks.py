"""What ranks of one run did beside each other, from the traces of several of them, whatever their clocks.

A kernel of a collective begins when its rank comes, and ends when all have come and are done. So that of the rank that
comes last takes the time of the collective, what others have more they wait, and ends tell what clocks differ by.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ....compiler.codes import Code
from ....compiler.text.diagnostics import Report, Span
from ....compiler.text.units import us_text
from .run import TracedCollective, TracedKernel, TracedRun

_TOLD = 4
"""Notes of traces that a refusal tells."""
Same = Mapping[TracedKernel, TracedKernel]
"""Kernels of one rank, and of each the one of another rank that is the same in the program of both."""


@dataclass(frozen=True, slots=True)
class TracedRank:
    """A rank of a run, its ``place`` among those that it moves data with, and what it ran by the clock of the first.

    ``same`` has the kernels of the first. Ends of collectives are at most ``apart_us`` from those at the first, by that
    clock; ``notes`` are those of its trace.
    """

    rank: int
    place: int
    same: Same
    apart_us: float
    notes: tuple[str, ...]


MAX_APART_US = 100.0
"""Ranks end a collective within some us. More than this is told: a clock may run faster or slower."""


def with_waits(runs: Sequence[TracedRun], span: Span, report: Report) -> tuple[TracedRun, ...]:
    """Return ``runs``, one step of several ranks, with the time that collectives waited for others.

    The n-th collective of one operation, group and size is the same in all traces that have as many of it. Traces of
    one rank, and those that have no collective of the first, are refused at ``span``.
    """
    if len(runs) == 1:
        return tuple(runs)
    ranks = [_rank_of(run, place) for place, run in enumerate(runs)]
    ((rank, times),) = Counter(ranks).most_common(1)
    if times > 1:
        raise report.fail(Code.MGS634, f"{times} traces are of rank {rank}", span, "give one of each rank")
    found, waited = [_by_key(run, _collective) for run in runs], [dict[TracedKernel, float]() for _ in runs]
    for key, own in found[0].items():
        places = [place for place, each in enumerate(found) if len(each.get(key, ())) == len(own)]
        for same in zip(*(found[place][key] for place in places), strict=True) if len(places) > 1 else ():
            least = min(each.took_us for each in same)
            for place, each in zip(places, same, strict=True):
                waited[place][each] = each.took_us - least
    if not waited[0]:
        message = f"no collective of rank {ranks[0]} is in another trace, as often and of the same size"
        notes = [f"rank {rank}: {note}" for rank, run in zip(ranks, runs, strict=True) for note in run.notes]
        message = "; ".join((message, *notes[:_TOLD]))
        raise report.fail(Code.MGS634, message, span, "give traces of the same step of one run")
    return tuple(_waiting(*each) for each in zip(runs, waited, strict=True))


def begun_together(run: TracedRun) -> TracedRun:
    """Return a run that ``with_waits`` returned, whose collectives begin when the last of their ranks comes."""
    kernels, late = list[TracedKernel](), 0
    for each in run.kernels:
        if each.waited_us and isinstance(each.does, TracedCollective):
            late += 1
            each = replace(each, does=replace(each.does, start_us=each.start_us + each.waited_us))
        kernels.append(each)
    note = f"{late} of {len(run.collectives)} collectives waited for other ranks: times are without that"
    return replace(run, kernels=tuple(kernels), notes=(note, *run.notes))


def ranks_of(runs: Sequence[TracedRun], ranks: int) -> tuple[TracedRank, ...]:
    """Return what ``runs``, which ``with_waits`` returned, say of ``ranks`` that move data together, the first first.

    Ranks that are none of those, or have no collective of the first, are left out. Of a group that is not known each
    rank is taken to be with those next to it.
    """
    first = runs[0]
    groups = Counter(each.group for each in first.collectives if each.num_ranks == ranks and each.group)
    ((group, _),) = groups.most_common(1) or [((), 0)]
    found = dict[int, TracedRank]()
    for number, run in enumerate(runs):
        rank = _rank_of(run, number)
        place = group.index(rank) if rank in group else None if group and number else rank % ranks
        later = [there.end_us - here.end_us for here, there in _both(first, run, _collective)] if number else [0.0]
        if place is not None and later and place not in found:
            clock = median(later)
            same = {here: moved(there, -clock) for here, there in _both(first, run, _name)}
            found[place] = TracedRank(rank, place, same, max(abs(each - clock) for each in later), run.notes)
    return tuple(found.values())


def check_clocks(known: Sequence[TracedRank], run: TracedRun, span: Span, report: Report) -> None:
    """Refuse ranks whose collectives end further from those of the first than all of its kernels, ``run``, last."""
    farthest = max(known, key=lambda each: each.apart_us)
    lasts_us = max(each.end_us for each in run.kernels) - run.kernels[0].start_us
    if farthest.apart_us > lasts_us:
        ends = f"end up to {us_text(farthest.apart_us)} from those of rank {known[0].rank}"
        message = f"collectives of rank {farthest.rank} {ends}, whose step lasts {us_text(lasts_us)}"
        raise report.fail(Code.MGS634, message, span, "give traces of one run, with times in us")


def rank_doubts(run: TracedRun, known: Sequence[TracedRank], given: int, ranks: int) -> Iterator[str]:
    """Yield what is in doubt of ``known`` ranks of so many, of as many traces as were ``given``."""
    first, *others = known
    if len(known) < given:
        yield f"{given - len(known)} of {given} traces are of ranks that move nothing with rank {first.rank}: left out"
    if others and len(known) < ranks:
        yield f"{ranks - len(known)} of {ranks} ranks have no trace: each is taken to be as rank {first.rank}"
    for each in others:
        yield from (f"rank {each.rank}: {note}" for note in each.notes if note not in first.notes)
        if each.apart_us > MAX_APART_US:
            yield (
                f"collectives of rank {each.rank} end up to {us_text(each.apart_us)} from those of rank {first.rank}:"
                " its clock runs faster or slower, or they are not the same"
            )
        unknown = sum(kernel not in each.same for kernel in run.kernels)
        if unknown:
            yield f"{unknown} kernels of rank {first.rank} are not as often in rank {each.rank}: taken to be as long"


def _rank_of(run: TracedRun, number: int) -> int:
    return number if run.rank is None else run.rank


def _waiting(run: TracedRun, waited: Mapping[TracedKernel, float]) -> TracedRun:
    kernels = tuple(replace(each, waited_us=waited.get(each, 0.0)) for each in run.kernels)
    return replace(run, kernels=kernels)


def moved(kernel: TracedKernel, by_us: float) -> TracedKernel:
    """Return a kernel that ran so much later."""
    return replace(kernel, start_us=kernel.start_us + by_us, end_us=kernel.end_us + by_us)


def _collective(kernel: TracedKernel) -> Hashable:
    """What is the same of a collective at all of its ranks; None of other kernels."""
    does = kernel.does
    if not isinstance(does, TracedCollective):
        return None
    return does.operation, does.num_ranks, does.group, does.num_in, does.num_out


def _name(kernel: TracedKernel) -> Hashable:
    """What is the same of a kernel at all ranks, which may be in groups of their own."""
    does = kernel.does
    if isinstance(does, TracedCollective):
        return does.operation, does.num_ranks, does.num_in, does.num_out
    return kernel.name


def _by_key(run: TracedRun, key_of: Callable[[TracedKernel], Hashable]) -> dict[Hashable, list[TracedKernel]]:
    """The kernels of a run in their order by what is the same at all ranks; without those of which nothing is."""
    found = defaultdict[Hashable, list[TracedKernel]](list)
    for kernel in run.kernels:
        if (key := key_of(kernel)) is not None:
            found[key].append(kernel)
    return found


def _both(
    one: TracedRun, other: TracedRun, key_of: Callable[[TracedKernel], Hashable]
) -> Iterator[tuple[TracedKernel, TracedKernel]]:
    """The kernels that are the same in two runs: the n-th of a key where both have as many."""
    there = _by_key(other, key_of)
    for key, own in _by_key(one, key_of).items():
        if len(there.get(key, ())) == len(own):
            yield from zip(own, there[key], strict=True)
