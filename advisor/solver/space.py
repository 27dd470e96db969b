"""What the search chooses from, and what it finds: plain data, without the solver."""

from dataclasses import dataclass

from ...compiler.codes import Code
from ...compiler.plan import MAX_COPY_SHARE, ScheduleError, check_engine, default_engine
from ...compiler.scenario import Pattern, Scenario, Shard, Tensor
from ...compiler.schedule import Choice, EngineChoice, EngineKind, Schedule
from ...compiler.templates import ALL_TEMPLATES, Template

DEFAULT_PIECES = (1, 2, 4, 8, 16, 32)
# Of a lone collective: pieces follow each other through the steps of an algorithm, and finer ones only cost more.
LONE_PIECES = (1, 4, 16)
# A copy by few SMs costs little compute and by many is fast; the best of these three is near the best of all.
DEFAULT_COPY_SMS = (8, 16, 32)
BASELINE = ALL_TEMPLATES[0]


class NoFeasibleSchedule(ValueError):
    """No schedule satisfies every constraint; ``reasons`` is a minimal set of those that cannot hold together."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__("no feasible schedule: " + "; ".join(reasons))
        self.reasons = reasons


@dataclass(frozen=True, slots=True)
class Absence:
    """A template that was asked for and has no feasible schedule, and why."""

    template: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """The feasible choices by template, chunks, engine and streams, in the order of ALL_TEMPLATES.

    ``complete`` is False if the enumeration was limited or stopped. ``absent`` tells of templates that the file names
    in its ``explore`` block and that cannot run.
    """

    choices: tuple[Choice, ...]
    complete: bool
    absent: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class Domains:
    """Candidate values of each knob, before any constraint. ``templates`` are indices into ALL_TEMPLATES."""

    templates: tuple[int, ...]
    chunks: tuple[int, ...]
    engines: tuple[EngineChoice, ...]


def domains_of(scenario: Scenario) -> Domains:
    """The values that ``scenario`` asks for, defaults where it leaves the choice; the baseline is always among them."""
    explore, n = scenario.explore, scenario.num_ranks
    asked = explore.templates or tuple(template.name for template in _searched(scenario.workload.pattern))
    pieces = LONE_PIECES if scenario.workload.gemm is None else DEFAULT_PIECES
    return Domains(
        templates=tuple(i for i, each in enumerate(ALL_TEMPLATES) if each is BASELINE or each.name in asked),
        chunks=tuple(sorted(set(explore.chunks))) or tuple(n * count for count in pieces),
        engines=_engines(scenario),
    )


def _searched(pattern: Pattern) -> tuple[Template, ...]:
    """Templates that are tried unasked: the algorithms for a lone collective, ``bulk`` where two things run beside."""
    return tuple(each for each in ALL_TEMPLATES if each.explored or pattern in each.patterns)


def streams_of(template: Template) -> tuple[int, ...]:
    """Candidate numbers of streams: one, and the template's default where it has several."""
    return tuple(sorted({1, template.default_streams}))


def resident_bytes(scenario: Scenario) -> int:
    """Memory of a rank for its inputs and its results, without what counts as staging: partial sums, gathered rows."""
    workload, moved, n = scenario.workload, scenario.workload.moved, scenario.num_ranks
    if moved is not None and workload.gemm is None:
        one_sided = workload.pattern in (Pattern.ALL_GATHER, Pattern.REDUCE_SCATTER)
        return moved.num_bytes + (moved.num_bytes // n if one_sided else moved.num_bytes)
    made = {*workload.made, *((moved.name,) if moved is not None and workload.pattern.sums else ())}
    return sum(_share(tensor, n) for tensor in workload.tensors if tensor.name not in made) + _result_bytes(scenario)


def _result_bytes(scenario: Scenario) -> int:
    """What a rank keeps of what is computed, and of a collective beside it."""
    workload, gemm, moved = scenario.workload, scenario.workload.gemm, scenario.workload.moved
    if gemm is None:
        return sum(tensor.num_bytes for tensor in workload.tensors if tensor.name in workload.made)
    if moved is not None and workload.pattern.reduces:
        return moved.num_bytes // scenario.num_ranks
    return gemm.m * gemm.n * gemm.dtype.num_bytes + (moved.num_bytes if moved and workload.pattern.beside else 0)


def check_memory(scenario: Scenario, schedule: Schedule) -> None:
    """Raise ScheduleError if the tensors of a rank and the staging of ``schedule`` do not fit its GPU."""
    needed, has = resident_bytes(scenario) + schedule.staging_bytes, scenario.gpu.hbm.capacity_bytes
    if needed > has:
        sizes = f"{needed / 2**30:.2f} GiB a rank, {scenario.gpu.name} has {has / 2**30:.2f} GiB"
        message = f"{schedule.expression} needs {sizes}"
        raise ScheduleError(Code.MGS402, message, "smaller tensors, more ranks, or a schedule with less staging")


def most_copy_sms(scenario: Scenario) -> int:
    """SMs that may be taken from the kernels."""
    return scenario.gpu.sms // MAX_COPY_SHARE


def _share(tensor: Tensor, num_ranks: int) -> int:
    return tensor.num_bytes if tensor.shard is Shard.NONE else tensor.num_bytes // num_ranks


def _engines(scenario: Scenario) -> tuple[EngineChoice, ...]:
    """Engines asked for, or one DMA engine a peer and a few numbers of copying SMs; one choice for a lone kernel."""
    engines = tuple(dict.fromkeys(scenario.explore.engines)) or _default_engines(scenario)
    if scenario.workload.moved is None:
        return (next((engine for engine in engines if _is_legal(scenario, engine)), engines[0]),)
    return engines


def _default_engines(scenario: Scenario) -> tuple[EngineChoice, ...]:
    most = most_copy_sms(scenario)
    dma = [default_engine(scenario)] if scenario.gpu.dma.engines else []
    counts = [count for count in DEFAULT_COPY_SMS if count <= most] or [max(1, most)]
    return (*dma, *(EngineChoice(EngineKind.SM, count) for count in counts))


def _is_legal(scenario: Scenario, engine: EngineChoice) -> bool:
    try:
        check_engine(scenario, engine)
    except ScheduleError:
        return False
    return True
