"""How long collectives wait for other ranks, from the traces of several of them.

A kernel of a collective begins when its rank comes, and ends when all have come and are done. So that of the rank that
comes last takes the time of the collective, and what others have more they wait. It needs no common clock.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ....compiler.codes import Code
from ....compiler.text.diagnostics import Report, Span
from .run import TracedCollective, TracedKernel, TracedRun

_Key = tuple[str, int, tuple[int, ...], int, int]
_TOLD = 8
"""Ranks whose waiting is told."""


def with_waits(runs: Sequence[TracedRun], span: Span, report: Report) -> TracedRun:
    """Return the first of ``runs``, one step of several ranks, with the time that its collectives waited for others.

    The n-th collective of one operation, group and size is the same in all traces that have as many of it. Traces of
    one rank, and those that have no collective of the first, are refused at ``span``.
    """
    if len(runs) == 1:
        return runs[0]
    ranks = [place if run.rank is None else run.rank for place, run in enumerate(runs)]
    ((rank, times),) = Counter(ranks).most_common(1)
    if times > 1:
        raise report.fail(Code.MGS634, f"{times} traces are of rank {rank}", span, "give one of each rank")
    found = [_by_key(run) for run in runs]
    waited, of_kernel = [0.0] * len(runs), dict[TracedKernel, float]()
    for key, own in found[0].items():
        places = [place for place, each in enumerate(found) if len(each.get(key, ())) == len(own)]
        for same in zip(*(found[place][key] for place in places), strict=True) if len(places) > 1 else ():
            least = min(each.took_us for each in same)
            of_kernel[same[0]] = same[0].took_us - least
            for place, each in zip(places, same, strict=True):
                waited[place] += each.took_us - least
    if not of_kernel:
        message = f"no other trace has a collective of that of rank {ranks[0]}, as often and of the same size"
        raise report.fail(Code.MGS634, message, span, "give traces of the same step of one run")
    told = ", ".join(f"rank {rank} {each:.1f} us" for rank, each in list(zip(ranks, waited, strict=True))[:_TOLD])
    notes = (f"{len(of_kernel)} collectives wait for the last rank to come: {told}", *runs[0].notes)
    kernels = tuple(replace(each, waited_us=of_kernel.get(each, 0.0)) for each in runs[0].kernels)
    return replace(runs[0], kernels=kernels, notes=notes)


def _by_key(run: TracedRun) -> dict[_Key, list[TracedKernel]]:
    """The collectives of a run in their order, by what is the same at all of their ranks."""
    found = defaultdict[_Key, list[TracedKernel]](list)
    for kernel in run.kernels:
        if isinstance(does := kernel.does, TracedCollective):
            found[does.operation, does.num_ranks, does.group, does.num_in, does.num_out].append(kernel)
    return found
