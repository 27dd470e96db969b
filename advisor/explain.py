"""Reasons in words, each tied to a figure of the simulation, and how far to trust the answer."""

from collections.abc import Iterator

from ..compiler.scenario import TICKS_PER_US, FabricKind, Origin, Pattern, Scenario
from ..simcore import Result
from .advice import Candidate, Confidence
from .bounds import Bound

# A loss below this share of the makespan is not worth a sentence.
WORTH_SAYING = 0.01


def confidence_of(scenario: Scenario, overlap: bool, gain: float, *, verified: bool) -> tuple[Confidence, str]:
    """Confidence and its reason: is the profile validated, and is the gain larger than what it can tell apart?"""
    gemm, gpu = scenario.gpu.gemm, scenario.gpu.name
    if not verified:
        return Confidence.LOW, "times are predictions of the ranker, nothing was simulated"
    if scenario.workload.gemm is None:
        return Confidence.MEDIUM, "a collective alone: its schedule is simulated, but not validated here"
    if scenario.workload.pattern is Pattern.GEMM:
        level = Confidence.HIGH if gemm.validated else Confidence.LOW
        return level, f"a kernel alone, by the profile of {gpu} (+-{float(gemm.error):.0%})"
    resolution = float(gemm.resolution)
    clear = gain >= 1 + resolution if overlap else gain <= 1 / (1 + resolution)
    size = f"the difference is {'above' if clear else 'within'} what the profile resolves ({resolution:.0%})"
    if gemm.validated:
        level = Confidence.HIGH if clear else Confidence.LOW
        return level, f"the GEMM profile of {gpu} is validated against measurements, and {size}"
    level = Confidence.MEDIUM if clear else Confidence.LOW
    return level, f"the GEMM profile of {gpu} is not validated (+-{float(gemm.error):.0%}); {size}"


def marks_of(scenario: Scenario) -> tuple[str, ...]:
    """What in the hardware profile is not validated, for the reader to see beside the numbers."""
    gpu, fabric, marks = scenario.gpu, scenario.system.fabric, []
    if scenario.workload.gemm is not None and not gpu.gemm.validated:
        dtype = scenario.workload.gemm.dtype.value
        marks.append(f"{gpu.name} {dtype} GEMM is not validated against measurements: +-{float(gpu.gemm.error):.0%}")
    if fabric.kind is FabricKind.RING and scenario.num_ranks > 3 and scenario.workload.moved is not None:
        marks.append(
            "on a ring blocks go straight over the links between; ring algorithms, which do better, are to come"
        )
    switch = fabric.switch.provenance if fabric.switch is not None else ()
    notes = (*gpu.provenance, *(note for link in fabric.links for note in link.provenance), *switch)
    assumed = [note.path for note in notes if note.origin is Origin.ASSUMED]
    if assumed:
        shown = ", ".join(assumed[:4]) + (f" and {len(assumed) - 4} more" if len(assumed) > 4 else "")
        marks.append(f"assumed, not measured: {shown}")
    return tuple(marks)


def reasons_for(
    scenario: Scenario,
    recommended: Candidate,
    serial: Candidate,
    best: Candidate,
    bound: Bound,
    result: Result | None,
    serial_result: Result | None,
) -> tuple[str, ...]:
    """Why the recommended schedule, in the order in which an engineer asks."""
    reasons: list[str] = []
    if result is not None and serial_result is not None:
        reasons.extend(_exposure(serial_result))
        if recommended.is_serial:
            reasons.extend(_why_serial(scenario, serial, best))
        else:
            reasons.extend(_why_overlap(result))
        reasons.extend(_losses(result))
    limit = serial.best_us * TICKS_PER_US / bound.ticks
    reasons.append(
        f"No schedule in the reach of Magus takes less than {bound.ticks / TICKS_PER_US:.1f} us ({bound.binding}): "
        f"at most {limit:.2f}x over serial."
    )
    return tuple(reasons)


def _exposure(serial: Result) -> Iterator[str]:
    if serial.comm_ticks and serial.compute_ticks:
        share = serial.exposed_ticks / serial.makespan_ticks
        yield (
            f"Run one after the other, {_us(serial.comm_ticks)} of communication and {_us(serial.compute_ticks)} of "
            f"compute leave {share:.0%} of the time without compute."
        )


def _why_overlap(result: Result) -> Iterator[str]:
    hidden = result.overlap_efficiency
    if hidden is not None:
        yield (
            f"{result.schedule.expression} hides {hidden:.0%} of its communication; "
            f"{_us(result.exposed_ticks)} stay exposed."
        )
    if result.dil is not None:
        yield f"Cut into parts, the GEMM takes {result.dil:.2f}x its whole time; the overlap pays for that."


def _why_serial(scenario: Scenario, serial: Candidate, best: Candidate) -> Iterator[str]:
    if not scenario.workload.pattern.overlaps:
        yield "There is nothing to overlap in this workload."
        return
    if best.expression == serial.expression:
        yield "No overlap schedule is in the space that the file explores."
        return
    change = best.best_us / serial.best_us - 1
    how = f"{change:.1%} slower than" if change > 0 else f"only {-change:.1%} faster than"
    yield f"The best overlap schedule simulated, {best.expression}, is {how} serial ({best.best_us:.1f} us)."


def _losses(result: Result) -> Iterator[str]:
    """The largest losses of the waterfall, as far as they matter."""
    waterfall = result.waterfall
    if waterfall is None:
        return
    named = (
        (waterfall.exposed_ticks, "exposed communication and slack of the bound"),
        (waterfall.decomposition_ticks, "decomposition of the kernel"),
        (waterfall.contention_ticks, "contention for shared memory"),
        (waterfall.launch_sync_ticks, "launches, engine setup and synchronization"),
    )
    said = [f"{_us(ticks)} {what}" for ticks, what in sorted(named, reverse=True) if _matters(ticks, result)]
    if said:
        yield f"Above the bound: {', '.join(said)}."


def _matters(ticks: int, result: Result) -> bool:
    return abs(ticks) >= WORTH_SAYING * result.makespan_ticks


def _us(ticks: int) -> str:
    return f"{ticks / TICKS_PER_US:.1f} us"
