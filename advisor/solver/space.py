"""What the search chooses from, and what it finds: plain data, without the solver."""

from dataclasses import dataclass

from ...compiler.codes import Code
from ...compiler.plan import MAX_COPY_SHARE, ScheduleError, check_engine, default_engine
from ...compiler.scenario import Pattern, Scenario, Shard, Tensor
from ...compiler.schedule import Choice, EngineChoice, EngineKind, Schedule
from ...compiler.templates import TEMPLATES, Template

DEFAULT_PIECES = (1, 2, 4, 8, 16, 32)
# A copy by few SMs costs little compute and by many is fast; the best of these three is near the best of all.
DEFAULT_COPY_SMS = (8, 16, 32)
BASELINE = TEMPLATES[0]


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
    """The feasible choices by template, chunks, engine and streams, in the order of TEMPLATES.

    ``complete`` is False if the enumeration was limited or stopped. ``absent`` tells of templates that the file names
    in its ``explore`` block and that cannot run.
    """

    choices: tuple[Choice, ...]
    complete: bool
    absent: tuple[Absence, ...] = ()


@dataclass(frozen=True, slots=True)
class Domains:
    """Candidate values of each knob, before any constraint. ``templates`` are indices into TEMPLATES."""

    templates: tuple[int, ...]
    chunks: tuple[int, ...]
    engines: tuple[EngineChoice, ...]


def domains_of(scenario: Scenario) -> Domains:
    """The values that ``scenario`` asks for, defaults where it leaves the choice; the baseline is always among them."""
    explore, n = scenario.explore, scenario.num_ranks
    asked = explore.templates or tuple(template.name for template in TEMPLATES)
    return Domains(
        templates=tuple(i for i, template in enumerate(TEMPLATES) if template is BASELINE or template.name in asked),
        chunks=tuple(sorted(set(explore.chunks))) or tuple(n * pieces for pieces in DEFAULT_PIECES),
        engines=_engines(scenario),
    )


def streams_of(template: Template) -> tuple[int, ...]:
    """Candidate numbers of streams: one, and the template's default where it has several."""
    return tuple(sorted({1, template.default_streams}))


def resident_bytes(scenario: Scenario) -> int:
    """Memory of a rank for its inputs and its output, without what counts as staging: partial sums, gathered rows."""
    workload, moved, n = scenario.workload, scenario.workload.moved, scenario.num_ranks
    if moved is not None and workload.gemm is None:
        return moved.num_bytes + moved.num_bytes // n  # one side whole, the other a shard
    if workload.pattern.reduces and moved is not None:
        inputs = sum(_share(tensor, n) for tensor in workload.tensors if tensor.name != moved.name)
        return inputs + moved.num_bytes // n
    gemm = workload.gemm
    output = 0 if gemm is None else gemm.m * gemm.n * gemm.dtype.num_bytes
    return sum(_share(tensor, n) for tensor in workload.tensors) + output


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
    if scenario.workload.pattern is Pattern.GEMM:
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
