"""Warnings about results outside the region in which the constants of a profile were fitted.

A profile declares where its constants were fitted (``calibrated``). Outside that region, and where nothing was fitted,
a result is an extrapolation and is marked as such.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

from ...compiler.ir import (
    TICKS_PER_US,
    AttentionBackShape,
    AttentionShape,
    DType,
    EngineKind,
    EngineMode,
    GemmRegion,
    GemmShape,
    Gpu,
    GroupedGemmShape,
    Kernels,
    KernelShape,
    OpCase,
    OpPlan,
    Pattern,
    Plan,
    Range,
    Scenario,
    Step,
    System,
    TileGroup,
    Transfer,
)
from ...compiler.ir.operations.base import Routing
from ...compiler.ir.operations.routing_laws import EVEN_LAWS, UNIFORM, placed
from ...compiler.planning.knobs.library import library_rejection, library_scaling
from ...compiler.text.units import exact_bytes_text, ticks_text
from ...simcore.kernels.attention import MAX_HEAD_DIM, MAX_WIDE_DIM, attention_model
from ...simcore.kernels.dispatch import work_of
from ...simcore.kernels.gemm import group_shape
from ...simcore.lower.collective import counts_ticks
from ...simcore.lower.machine import looks_for_parts

# The tables of measured collectives have no rows of these.
_NOT_MEASURED = (Pattern.BROADCAST, Pattern.SEND_RECV)


def outside_calibration(scenario: OpCase, schedules: Iterable[OpPlan]) -> tuple[str, ...]:
    """Return why results of ``schedules`` lie outside the fitted region of the profile; each reason once."""
    sentences = chain(*(_of_schedule(scenario, schedule) for schedule in schedules), _of_system(scenario))
    return tuple(dict.fromkeys(sentences))


def is_fitted_gemm(gpu: Gpu, shape: GemmShape) -> bool:
    """Whether the constants of ``gpu`` were fitted to such products."""
    region = gpu.calibrated.gemm_of(shape.dtype)
    return region is not None and _same_rate(gpu, shape.dtype, region.dtype) and _inside(region, shape)


def _of_schedule(scenario: OpCase, schedule: OpPlan) -> Iterator[str]:
    ranks = range(len(schedule.by_rank)) or range(1)
    steps = list(chain.from_iterable(schedule.steps_of(rank) for rank in ranks))
    steps += [override.step for override in schedule.overrides]
    yield from _kernels(scenario, schedule, steps)
    yield from counts_read(scenario, schedule)
    yield from _copies(scenario.gpu, schedule, steps)
    if looks_for_parts(scenario, schedule):
        yield "one kernel that sums whatever copy engines have brought is not measured"


def _has_constants(gpu: Gpu, shape: KernelShape) -> bool:
    """Whether ``gpu`` has constants of such kernels, which are no plain GEMMs."""
    if isinstance(shape, GroupedGemmShape):
        return gpu.grouped_of(shape.dtype) is not None
    if not isinstance(shape, AttentionShape) or isinstance(shape, AttentionBackShape):
        return False
    return attention_model(gpu, shape) is not None


def _widest(gpu: Gpu, shape: AttentionShape) -> int:
    """Columns of the widest heads that constants of ``gpu`` were fitted to; of wide ones with values of their own."""
    return MAX_HEAD_DIM if gpu.wide is None or shape.in_keys else MAX_WIDE_DIM


def _of_wide_heads(gpu: Gpu, kernels: Iterable[KernelShape | None]) -> Iterator[str]:
    known = (kernel for kernel in kernels if isinstance(kernel, AttentionShape) and _has_constants(gpu, kernel))
    widths = ((each.head_dim, _widest(gpu, each)) for each in known if each.values is None)
    for columns, most in dict.fromkeys(each for each in widths if each[0] > each[1]):
        fitted = f"the constants of {gpu.name} were fitted to heads of up to {most}"
        yield f"attention of heads of {columns} columns: {fitted}, and wider ones have kernels of their own"


def _kernels(scenario: OpCase, schedule: OpPlan, steps: Sequence[Step]) -> Iterator[str]:
    """Yield warnings about kernels: GEMMs of other sizes or types than fitted; other, persistent, parallel kernels."""
    groups = [step for step in steps if isinstance(step, TileGroup)]
    gpu, region = scenario.gpu, scenario.gpu.calibrated.gemm
    stages = scenario.shape.stages
    products = [group for group in groups if stages[group.kernel].gemm is not None]
    if products and region is not None:
        yield from _gemms(gpu, list(dict.fromkeys(group_shape(scenario, group) for group in products)))
    others = [stage.kernel for stage in stages if stage.kernel is not None]
    if region is not None and not all(_has_constants(gpu, kernel) for kernel in others):
        yield f"the constants of {_named(gpu, 'gemm')} were fitted to GEMMs, not to other kernels"
    yield from _of_wide_heads(gpu, others)
    for kernel in (stage.gemm or stage.kernel for stage in stages):
        if isinstance(kernel, GemmShape | GroupedGemmShape) and not gpu.peak(kernel.right):
            widened = f"to {kernel.dtype.value} on the way, whose time is not counted"
            yield f"{gpu.name} has no products of {kernel.right.value}: kernels widen such weights {widened}"
    if groups and schedule.tactics.kernel is Kernels.PERSISTENT:
        yield "no constant is fitted to persistent kernels, whose tiles wait for what transfers bring"
    if len({group.stream for group in groups}) > 1:
        yield "no constant is fitted to kernels that run beside each other in several streams"


def _gemms(gpu: Gpu, shapes: Sequence[GemmShape]) -> Iterator[str]:
    dtype = shapes[0].dtype
    region = gpu.calibrated.gemm_of(dtype)
    if region is None:
        return
    fitted = f"the constants of {_named(gpu, 'gemm')} were fitted"
    if not _same_rate(gpu, dtype, region.dtype):
        yield f"{dtype.value} GEMM: {fitted} to {region.dtype.value}"
    weights = shapes[0].right
    if weights is not dtype:
        yield f"{dtype.value} GEMM with weights of {weights.value}: {fitted} to weights of the type of the input"
    outside = [shape for shape in shapes if not _inside(region, shape)]
    if outside:
        others = len(outside) - 1
        more = f" and {others} other shape{'s' if others > 1 else ''}" if others else ""
        ranges = ", ".join(f"{name} {_range(side)}" for name, side in zip("mnk", _sides(region), strict=True))
        first = outside[0]
        yield f"GEMM of {first.m} x {first.n} x {first.k}{more}: {fitted} for {ranges}"


def _same_rate(gpu: Gpu, dtype: DType, fitted: DType) -> bool:
    """Whether GEMMs of two types take the same time: bf16 and fp16 have one size and one rate."""
    return dtype is fitted or (dtype.mean_bytes == fitted.mean_bytes and gpu.peak(dtype) == gpu.peak(fitted))


def _sides(region: GemmRegion) -> tuple[Range, Range, Range]:
    return region.m, region.n, region.k


def _inside(region: GemmRegion, shape: GemmShape) -> bool:
    sizes = (shape.m, shape.n, shape.k)
    return all(low <= size <= high for size, (low, high) in zip(sizes, _sides(region), strict=True))


def counts_read(scenario: OpCase, schedule: OpPlan) -> Iterator[str]:
    """Yield that the host has to read how much its copy engines copy, where only the GPUs know."""
    ticks = counts_ticks(scenario, schedule)
    if ticks and schedule.engine.kind is EngineKind.DMA:
        yield (
            f"the host must tell {schedule.engine} how many rows to copy, and only the GPUs know: {ticks_text(ticks)} "
            "to read it back are counted; a busy host takes longer"
        )


def _copies(gpu: Gpu, schedule: OpPlan, steps: Sequence[Step]) -> Iterator[str]:
    """Yield warnings about copies: SMs as not fitted, prelaunched commands of unknown cost, channels."""
    if schedule.engine.mode is EngineMode.PRELAUNCHED and not gpu.dma.prelaunch_ticks:
        yield f"what commands cost that were written before is not known of {gpu.name} (dma {{ prelaunch }}): 0 here"
    if schedule.engine.mode is EngineMode.CHANNELS and schedule.engine.kind is EngineKind.DMA:
        yield f"that engines of {gpu.name} set up a copy while they move another ({schedule.engine}) is not measured"
    fitted, count = gpu.calibrated.sm_copy, schedule.engine.count
    own = schedule.engine.kind is EngineKind.SM and not schedule.engine.by_library
    by_sms = own and any(isinstance(step, Transfer) for step in steps)
    if by_sms and fitted is not None and not fitted[0] <= count <= fitted[1]:
        copying = f"copies by {count} SM{'s' if count > 1 else ''}"
        yield f"{copying}: the rate of {_named(gpu, 'sm_copy')} was fitted for {_range(fitted)} SMs"


def _of_system(scenario: OpCase) -> Iterator[str]:
    """Yield warnings about collectives of other sizes or numbers of GPUs than fitted, and about several nodes."""
    gpu, moved, region = scenario.gpu, scenario.shape.moved, scenario.gpu.calibrated.collectives
    if moved is not None and region is not None and scenario.shape.pattern not in _NOT_MEASURED:
        low, high = region.num_bytes
        fitted = f"collectives of {_named(gpu, 'collectives')} were fitted"
        if not low <= moved.num_bytes <= high:
            sizes = f"{exact_bytes_text(low)} to {exact_bytes_text(high)}"
            yield f"{exact_bytes_text(moved.num_bytes)} moved: {fitted} from {sizes}"
        if scenario.num_ranks not in region.ranks:
            counts = ", ".join(map(str, region.ranks))
            yield f"{scenario.num_ranks} GPUs: {fitted} on {counts}"
    scaling = library_scaling(scenario.system) if moved is not None and library_rejection(scenario) is None else ""
    if "links" in scaling or "latency" in scaling:
        yield f"the library's times are scaled {scaling}: {_named(gpu, 'collectives')} was not measured there"
    if moved is not None and scenario.system.fabric.node_size:
        yield "no constant is fitted to transfers between nodes"


def _named(gpu: Gpu, part: str) -> str:
    """Return the name of the GPU, and whether the constants of ``part`` come from a sibling."""
    return f"{gpu.name} (from a sibling)" if part in gpu.calibrated.derived else gpu.name


def _range(limits: Range) -> str:
    return f"{limits[0]}..{limits[1]}"


def outside_of_plan(system: System, plan: Plan) -> tuple[str, ...]:
    """Why results of a workload lie outside what the profile is fitted to, as sentences; what is farthest off first."""
    found = list(_of_wide_heads(system.gpu, (stage.kernel for part in plan.parts for stage in part.shape.stages)))
    for part in plan.parts:
        found += outside_calibration(OpCase(part.name, system, part.shape), (part.schedule,))
    if any(part.stream > 0 for part in plan.parts):
        found.append("kernels side by side in streams: no profile is fitted to them")
    return tuple(dict.fromkeys(found))


# What rows that are not even cost in the kernels of experts, and what other places or copies of these would buy.

NOTABLE = 1.02
"""More rows of the hottest rank than this times the mean are told."""


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The hottest rank has ``hot`` times the mean rows; the products of its experts take ``ticks``, ``even`` if routed
    uniformly, ``greedy`` if experts lie by their rows, and so on with numbers of ``replicas``.
    """

    hot: float
    ticks: int
    even: int
    greedy: int
    replicas: tuple[tuple[int, int], ...]

    def gain(self, ticks: int) -> float:
        """How much less time products take if they take ``ticks``, as a speedup."""
        return self.ticks / ticks

    @property
    def document(self) -> dict[str, object]:
        """The part of an answer in JSON, times in us."""
        return {
            "hottest_over_mean": self.hot,
            "products_us": self.ticks / TICKS_PER_US,
            "uniform_us": self.even / TICKS_PER_US,
            "placed_greedy_us": self.greedy / TICKS_PER_US,
            "replicas": [
                {"replicas": count, "products_us": ticks / TICKS_PER_US, "speedup": self.gain(ticks)}
                for count, ticks in self.replicas
            ],
        }


@lru_cache(maxsize=16)
def imbalance_of(scenario: Scenario) -> Imbalance | None:
    """Return what uneven routing costs in the products of experts, each simulated alone; None where rows are even.

    Rows with replicas and other places are those that the law gives there. Weights of replicas must fit into memory,
    which is not checked here.
    """
    routing = next((case.shape.routing for case in scenario.moving if case.shape.routing is not None), None)
    if routing is None or routing.law.name in EVEN_LAWS:
        return None
    kernels = (case.shape.kernel for case in scenario.cases)
    products = [each for each in kernels if isinstance(each, GroupedGemmShape) and each.rows == routing.dealt]
    hot = sum(routing.dealt) * scenario.num_ranks / (routing.tokens * routing.top)
    if hot <= NOTABLE or not products:
        return None

    def ticks(rows: tuple[int, ...]) -> int:
        gpu = scenario.gpu
        return sum(work_of(gpu, replace(each, rows=rows), gpu.sms).alone_ticks for each in products)

    copies = {count: ticks(_rows(routing, count)) for count in _replicas(routing)}
    even = placed(UNIFORM, routing.ranks, routing.experts, routing.top, routing.tokens).rows
    return Imbalance(hot, ticks(routing.dealt), ticks(even), ticks(_rows(routing)), tuple(copies.items()))


def _rows(routing: Routing, replicas: int = 0) -> tuple[int, ...]:
    """The rows of experts of the hottest rank, if they lie by their rows."""
    return placed(routing.law, routing.ranks, routing.experts, routing.top, routing.tokens, replicas, True).rows


def _replicas(routing: Routing) -> Iterator[int]:
    """More replicas than there are, with which copies still divide among ranks: one more for each rank, and four."""
    ranks, experts = routing.ranks, routing.experts
    first = routing.replicas + (-(experts + routing.replicas) % ranks or ranks)
    for count in (first, first + 3 * ranks):
        if count <= experts * (ranks - 1):
            yield count


def imbalance_lines(scenario: Scenario) -> Iterator[str]:
    """Yield the same as a sentence."""
    found = imbalance_of(scenario)
    if found is None:
        return
    bought = [f"{count} replicas {found.gain(ticks):.2f}x" for count, ticks in found.replicas]
    yield (
        f"The hottest rank has {found.hot:.2f} times the mean rows of experts, and the others wait for it. Its "
        f"products take {ticks_text(found.ticks)}; if routing were uniform, {ticks_text(found.even)}. With "
        f"placed=greedy they are {', with '.join([f'{found.gain(found.greedy):.2f}x as fast', *bought])}, "
        "which are placed so too."
    )
