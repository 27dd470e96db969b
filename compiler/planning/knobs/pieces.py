"""How three templates cut work: parts of ``bespoke``, waves of a kernel of ``pipelined`` or ``forest``, its trees.

Copies of the first and the last are dealt to engines in turn, sums of the other two to streams.
"""

from ...codes import Code
from ...ir import Adds, Kernels, Rejection
from ...templates.bespoke import reject_parts, shortened
from ...templates.cuts import reject_cuts, shortened_cuts
from ...templates.forest import reject_copies, reject_trees
from ...text.vocabulary import MAX_STREAMS
from .base import CountValues, Knob, Rule, ScheduleRequest, SizeValues

_LISTS = ("parts", "slices", "columns")


def _reject_loads(request: ScheduleRequest) -> Rejection | None:
    if not (request.template.has("parts") and request.scenario.shape.loads):
        return None
    name = request.template.name
    message = f"{name} counts the rows of each peer, the same for every rank, and here they differ"
    return Rejection(Code.MGS515, message, "hetero_fused_1d and pipelined cut what each rank has")


def _reject_untold(request: ScheduleRequest) -> Rejection | None:
    choice = request.choice
    lists = () if request.template.has("parts") else (choice.parts, choice.slices, choice.columns)
    if not any(lists) and (request.template.has("lanes") or not choice.lanes):
        return None
    message = f"{choice.template} is not told its parts, slices, columns or lanes"
    return Rejection(Code.MGS511, message, "bespoke takes them")


def _reject_parts(request: ScheduleRequest) -> Rejection | None:
    return reject_parts(request.problem) if request.template.has("parts") and request.choice.parts else None


def _reject_cuts(request: ScheduleRequest) -> Rejection | None:
    return reject_cuts(request.problem) if request.template.has("slices") else None


def _reject_lanes(request: ScheduleRequest) -> Rejection | None:
    lanes, engine = request.choice.lanes, request.choice.engine
    return Rejection(Code.MGS401, f"{lanes} lanes of {engine}", "a lane is an engine") if lanes > engine.count else None


PARTS = Knob(
    "parts",
    "parts",
    SizeValues("rows of a part", "parts=[[512, 0], [0, 256], [0, 256]]", shortened, empty=False),
    (),
    rules=(
        Rule(("schedules",), _reject_loads),
        Rule(("schedules", *_LISTS, "lanes"), _reject_untold),
        Rule(("schedules", "chunks", "parts"), _reject_parts),
    ),
    optional=True,
    explored=False,
)
SLICES = Knob(
    "slices",
    "slices",
    SizeValues("a slice", "slices=[[], [1024, 3072], []]", shortened_cuts),
    (),
    rules=(Rule(("schedules", *_LISTS), _reject_cuts),),
    optional=True,
    explored=False,
)
COLUMNS = Knob(
    "columns",
    "columns",
    SizeValues("a band of columns", "columns=[[], [1024, 3072], []]", shortened_cuts),
    (),
    optional=True,
    explored=False,
)
LANES = Knob(
    "lanes",
    "lanes",
    CountValues(),
    0,
    rules=(Rule(("engine", "lanes"), _reject_lanes),),
    optional=True,
    explored=False,
)


def _reject_without_waves(request: ScheduleRequest) -> Rejection | None:
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
        # verify/happens_before.py: a sum that polls for what another passes on may hold the SMs that the other needs.
        why = "sums that follow a persistent kernel wait with SMs held, those of one stream in order"
        return _rejection(why, "sums=1")
    return None


WAVES = Knob(
    "waves",
    "waves",
    CountValues(),
    1,
    rules=(Rule(("schedules", "waves", "sums"), _reject_without_waves), Rule(("schedules", "waves"), _reject_waves)),
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


def _reject_trees(request: ScheduleRequest) -> Rejection | None:
    if request.template.has("trees"):
        if request.problem.adds_ranks:
            why = "kernels of forest take rows of any rank, and here those of each rank add up"
            return _rejection(why, "pipelined takes the rows of each rank by themselves")
        return reject_trees(request.problem)
    return _rejection(f"{request.choice.template} has no trees", "forest has them") if request.choice.trees else None


def _reject_copies(request: ScheduleRequest) -> Rejection | None:
    return reject_copies(request.problem) if request.template.has("trees") else None


def _reject_gets(request: ScheduleRequest) -> Rejection | None:
    if not (request.template.has("trees") and request.problem.gets) or request.problem.pattern.produces:
        return None  # no template gets what kernels made
    return _rejection("forest passes on what came from others, and a get cannot know when its peer has it", "puts")


TREES = Knob(
    "trees",
    "trees",
    SizeValues("a number of a tree", "trees=[[0, 1, 0, 0, 1], [1, 1, 1, 1, 1], [2, 1, 2, 2, 2]]", tuple, empty=False),
    (),
    rules=(
        Rule(("schedules", "transfer"), _reject_gets),
        Rule(("schedules", "trees"), _reject_trees),
        Rule(("schedules", "chunks", "trees"), _reject_copies),
    ),
    optional=True,
    explored=False,
)


def _rejection(message: str, hint: str) -> Rejection:
    return Rejection(Code.MGS511, message, hint)
