"""Waves that one kernel of ``pipelined`` takes, and streams in which its sums run."""

from ...codes import Code
from ...ir import Adds, Kernels, Rejection
from ...text.vocabulary import MAX_STREAMS
from .base import CountValues, Knob, Rule, ScheduleRequest


def _reject_untold(request: ScheduleRequest) -> Rejection | None:
    choice = request.choice
    if request.template.has("waves") or choice.waves == choice.sums == 1:
        return None
    return _rejection(f"{choice.template} is not told its waves, nor streams for sums", "pipelined takes them")


def _reject_waves(request: ScheduleRequest) -> Rejection | None:
    problem = request.problem
    if problem.waves == 1 or Adds.BLOCKS not in (problem.cutting.adds, problem.then and problem.then.cutting.adds):
        return None
    return _rejection("waves are of different rows, and blocks lie side by side at the same ones", "leave waves out")


def _reject_sums(request: ScheduleRequest) -> Rejection | None:
    choice, pattern = request.choice, request.problem.pattern
    if choice.sums == 1:
        return None
    if not pattern.sums:
        return _rejection(f"{pattern.value} sums nothing", "leave sums out")
    if choice.tactics.kernel is Kernels.PERSISTENT:
        # verify/sm_deadlock.py: a sum that polls for what another passes on may hold the SMs that the other needs.
        why = "sums that follow a persistent kernel wait with SMs held, those of one stream in order"
        return _rejection(why, "sums=1")
    return None


WAVES = Knob(
    "waves",
    "waves",
    CountValues(),
    1,
    rules=(Rule(("schedules", "waves", "sums"), _reject_untold), Rule(("schedules", "waves"), _reject_waves)),
    optional=True,
)
SUMS = Knob(
    "sums",
    "sums",
    CountValues(MAX_STREAMS),
    1,
    rules=(Rule(("kernel", "sums"), _reject_sums),),
    optional=True,
)


def _rejection(message: str, hint: str) -> Rejection:
    return Rejection(Code.MGS511, message, hint)
