"""What the search chooses from: plain data, without the solver."""

from dataclasses import dataclass
from typing import TypeVar

from ...compiler.codes import Code
from ...compiler.collectives import ALGORITHM_BY_NAME
from ...compiler.ir import (
    CopyProtocol,
    Direction,
    EngineChoice,
    EngineKind,
    EngineMode,
    Kernels,
    LaunchMode,
    Pattern,
    PeerOrder,
    Rejection,
    Scenario,
    Schedule,
    Shard,
    Tensor,
    Wait,
    WaitPer,
)
from ...compiler.planning.build import ScheduleError, default_engine, most_copy_sms, reject_engine
from ...compiler.templates import ALL_TEMPLATES, Template
from ...compiler.templates.collective import DEFAULT_ALGORITHM, usual_algorithm
from .knobs import Knob, Knobs

DEFAULT_PIECES = (1, 2, 4, 8, 16, 32)
# Of a lone collective: pieces follow each other through the steps of an algorithm, and finer ones only cost more.
LONE_PIECES = (1, 4, 16)
# A copy by few SMs costs little compute and by many is fast; the best of these three is near the best of all.
DEFAULT_COPY_SMS = (8, 16, 32)
# Algorithms that are tried unasked beside kernels, and up to how many ranks.
PASSING_ON = ("ring", "double_ring", "hierarchical")
MOST_RANKS_PASSING_ON = 16
BASELINE = ALL_TEMPLATES[0]


@dataclass(frozen=True, slots=True)
class Domains:
    """Candidate values of each knob, before any constraint.

    ``templates`` are indices into ALL_TEMPLATES, ``algorithms`` those of templates that take one, empty for the usual
    one; ``streams`` is empty where each template tries its own.
    """

    templates: tuple[int, ...]
    chunks: tuple[int, ...]
    engines: tuple[EngineChoice, ...]
    streams: tuple[int, ...] = ()
    algorithms: tuple[str, ...] = ()
    directions: tuple[Direction, ...] = (Direction.PUT,)
    protocols: tuple[CopyProtocol, ...] = (CopyProtocol.SIMPLE,)
    kernels: tuple[Kernels, ...] = (Kernels.LAUNCHED,)
    waits: tuple[Wait, ...] = (Wait.EVENT,)
    waits_per: tuple[WaitPer, ...] = (WaitPer.CHUNK,)
    launches: tuple[LaunchMode, ...] = (LaunchMode.STREAM,)
    orders: tuple[PeerOrder, ...] = (PeerOrder.ROTATED,)
    depths: tuple[int, ...] = (0,)


def domains_of(scenario: Scenario) -> Domains:
    """The values that ``scenario`` asks for, defaults where it leaves the choice; the baseline is always among them."""
    explore, n = scenario.explore, scenario.num_ranks
    asked = explore.templates or tuple(template.name for template in _searched(scenario))
    pieces = LONE_PIECES if scenario.workload.compute is None else DEFAULT_PIECES
    kernels = explore.kernels or (Kernels.LAUNCHED,)
    return Domains(
        templates=tuple(i for i, each in enumerate(ALL_TEMPLATES) if each is BASELINE or each.name in asked),
        chunks=tuple(sorted(set(explore.chunks))) or tuple(n * count for count in pieces),
        engines=_engines(scenario),
        streams=tuple(sorted(set(explore.streams))),
        algorithms=explore.algorithms,
        directions=explore.directions or (Direction.PUT,),
        protocols=explore.protocols or (CopyProtocol.SIMPLE,),
        kernels=kernels,
        waits=explore.waits or tuple(_USUAL_WAIT[kernel] for kernel in kernels),
        waits_per=explore.waits_per or (WaitPer.CHUNK,),
        launches=explore.launches or (LaunchMode.STREAM,),
        orders=explore.orders or (PeerOrder.ROTATED,),
        depths=(0, *sorted(set(explore.depths))),
    )


def knobs_of(scenario: Scenario, domains: Domains) -> Knobs:
    """The values that knobs may have anywhere in the model of ``domains``.

    They are more than what is asked for: where a template does not have a knob it stands at its usual value, and that a
    value is not asked for is a rule, which can then be named where nothing is feasible.
    """
    n, templates = scenario.num_ranks, [ALL_TEMPLATES[index] for index in domains.templates]
    streams = {count for template in templates for count in (*streams_of(template), *domains.streams)}
    algorithms = {name for template in templates for name in algorithms_of(scenario, template, domains)}
    values = {
        Knob.TEMPLATE: domains.templates,
        Knob.CHUNKS: sorted({n, *domains.chunks, *(n * pieces for pieces in DEFAULT_PIECES)}),
        Knob.ENGINE: sorted(domains.engines, key=_engine_place),
        Knob.STREAMS: sorted(streams),
        Knob.ALGORITHM: ["", *(name for name in ALGORITHM_BY_NAME if name in algorithms)],
        Knob.TRANSFER: widened(domains.directions, Direction),
        Knob.PROTOCOL: widened(domains.protocols, CopyProtocol),
        Knob.KERNEL: widened(domains.kernels, Kernels),
        Knob.WAIT: widened(domains.waits, Wait),
        Knob.PER: widened(domains.waits_per, WaitPer),
        Knob.LAUNCH: widened(domains.launches, LaunchMode),
        Knob.ORDER: widened(domains.orders, PeerOrder),
        Knob.DEPTH: domains.depths,
    }
    return Knobs({knob: tuple(each) for knob, each in values.items()})


_USUAL_WAIT = {Kernels.LAUNCHED: Wait.EVENT, Kernels.PERSISTENT: Wait.POLL}
_Word = TypeVar("_Word", Direction, CopyProtocol, Kernels, Wait, WaitPer, LaunchMode, PeerOrder)


def widened(asked: tuple[_Word, ...], kind: type[_Word]) -> tuple[_Word, ...]:
    """The values of a knob: all of them if it was asked for, else the usual one, which stands first."""
    usual = next(iter(kind))
    return (usual,) if asked == (usual,) else tuple(kind)


def _engine_place(engine: EngineChoice) -> tuple[int, int, int]:
    return tuple(EngineKind).index(engine.kind), engine.count, tuple(EngineMode).index(engine.mode)


def algorithms_of(scenario: Scenario, template: Template, domains: Domains) -> tuple[str, ...]:
    """Candidate algorithms of a template, empty for its usual one.

    Of a lone collective algorithms are templates. Where a file names none, a template that is built around one is tried
    with all if the file names that, else with those that pass on; one that merely contains the direct exchange with the
    usual one, and with those where they pay.
    """
    workload = scenario.workload
    if not template.has_algorithm or workload.moved is None or workload.compute is None:
        return ("",)
    around = template.default_algorithm != DEFAULT_ALGORITHM
    usual = usual_algorithm(workload.pattern, template.default_algorithm)
    named = tuple(ALGORITHM_BY_NAME) if template.name in scenario.explore.templates else PASSING_ON
    beside = (usual, *PASSING_ON) if passing_on_pays(scenario) else (usual,)
    names = domains.algorithms or (named if around else beside)
    if template is BASELINE and usual not in names:  # the baseline stays, whatever is asked for
        names = (usual, *names)
    # Pipelined and direct it is hetero_fused_1d, kernel by kernel.
    twins = {DEFAULT_ALGORITHM} if around and usual != DEFAULT_ALGORITHM and _TWIN in _names(domains) else set()
    return tuple("" if name == usual else name for name in names if name not in twins)


_TWIN = "hetero_fused_1d"


def _names(domains: Domains) -> set[str]:
    return {ALL_TEMPLATES[index].name for index in domains.templates}


def candidate_streams(template: Template, domains: Domains) -> tuple[int, ...]:
    """Candidate numbers of streams of a template."""
    return domains.streams if template.has_streams and domains.streams else streams_of(template)


def _searched(scenario: Scenario) -> tuple[Template, ...]:
    """Templates that are tried unasked: the algorithms for a lone collective, ``bulk`` where two things run beside."""
    pattern = scenario.workload.pattern
    unasked = pattern if passing_on_pays(scenario) or not pattern.overlaps else None
    fitting = (each for each in ALL_TEMPLATES if each.explored or unasked in each.patterns)
    return tuple(each for each in fitting if not each.has_parts)


def passing_on_pays(scenario: Scenario) -> bool:
    """Whether algorithms that pass blocks on are tried unasked: ways between ranks have several links.

    Not where ranks are many, as what each of them does may have to be written apart.
    """
    return not scenario.system.fabric.direct and scenario.num_ranks <= MOST_RANKS_PASSING_ON


def streams_of(template: Template) -> tuple[int, ...]:
    """Candidate numbers of streams: one, and the template's default where it has several."""
    return tuple(sorted({1, template.default_streams}))


def resident_bytes(scenario: Scenario) -> int:
    """Memory of a rank for its inputs and its results, without what counts as staging: partial sums, gathered rows."""
    workload, moved, n = scenario.workload, scenario.workload.moved, scenario.num_ranks
    if moved is not None and workload.compute is None:
        one_sided = workload.pattern in (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER)
        return moved.num_bytes + (moved.num_bytes // n if one_sided else moved.num_bytes)
    made = {*workload.made, *((moved.name,) if moved is not None and workload.pattern.sums else ())}
    return sum(_share(tensor, n) for tensor in workload.tensors if tensor.name not in made) + _result_bytes(scenario)


def _result_bytes(scenario: Scenario) -> int:
    """What a rank keeps of what is computed last, and of a collective beside it."""
    workload = scenario.workload.last_stage
    gemm, moved = workload.gemm, workload.moved
    if gemm is None:
        ends = [tensor for tensor in workload.tensors if tensor.name == workload.output or moved is None]
        return sum(_share(tensor, scenario.num_ranks) for tensor in ends if tensor.name in workload.made)
    if moved is not None and workload.pattern.reduces:
        return moved.num_bytes // scenario.num_ranks
    return gemm.m * gemm.n * gemm.dtype.num_bytes + (moved.num_bytes if moved and workload.pattern.beside else 0)


def check_memory(scenario: Scenario, schedule: Schedule) -> None:
    """Raise ScheduleError if the tensors of a rank and the staging of ``schedule`` do not fit its GPU."""
    needed, has = resident_bytes(scenario) + schedule.staging_bytes, scenario.gpu.hbm.capacity_bytes
    if needed > has:
        sizes = f"{needed / 2**30:.2f} GiB a rank, {scenario.gpu.name} has {has / 2**30:.2f} GiB"
        message = f"{schedule.expression} needs {sizes}"
        hint = "smaller tensors, more ranks, or a schedule with less staging"
        raise ScheduleError(Rejection(Code.MGS402, message, hint))


def _share(tensor: Tensor, num_ranks: int) -> int:
    return tensor.num_bytes if tensor.shard is Shard.NONE else tensor.num_bytes // num_ranks


def _engines(scenario: Scenario) -> tuple[EngineChoice, ...]:
    """Engines asked for, or one DMA engine a peer and a few numbers of copying SMs; one choice for a lone kernel."""
    engines = tuple(dict.fromkeys(scenario.explore.engines)) or _default_engines(scenario)
    if scenario.workload.moved is None:
        return (next((engine for engine in engines if is_granted(scenario, engine)), engines[0]),)
    return engines


def _default_engines(scenario: Scenario) -> tuple[EngineChoice, ...]:
    most = most_copy_sms(scenario.gpu)
    dma = [default_engine(scenario)] if scenario.gpu.dma.engines else []
    counts = [count for count in DEFAULT_COPY_SMS if count <= most] or [max(1, most)]
    return (*dma, *(EngineChoice(EngineKind.SM, count) for count in counts))


def is_granted(scenario: Scenario, engine: EngineChoice) -> bool:
    """Whether the GPU has such an engine."""
    return reject_engine(scenario.gpu, engine) is None
