"""The reasons of an answer in sentences, each with a figure of the simulation, and its confidence."""

from collections.abc import Iterator, Sequence

from ...compiler.ir import (
    TICKS_PER_US,
    TYPES_WITH_CONSTANTS,
    Gpu,
    Link,
    OpCase,
    Origin,
    Pattern,
    Scenario,
)
from ...compiler.planning.knobs.engine import copying_sms
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.templates.base import OVERLAPPED_PATTERNS
from ...compiler.text.units import rate_text, ticks_text, us_text
from ...simcore import Result
from ..bounds.lower_bound import Bound
from ..candidates.advice import Advice, Confidence, baseline_name, short_names
from ..candidates.candidate import MIN_LEAD, Candidate, given_up
from ..candidates.predicted import NUM_VARIED_ALGORITHMS, chosen_algorithm, is_judged, library_time, library_unfit
from ..implementations.predict import MIN_GAIN, Promise
from ..solver.domains import MOST_RANKS_SIMULATED, passing_on_pays

COPY_ENGINES_LEFT_OUT = (
    "Copy engines are left out, but in schedules that the file declares and in their variants: the host must tell them "
    "how many rows to copy, and only the GPUs know. explore { engine dma } compares them, with the time to read them."
)

CHOSEN = "chosen: the simplest"

# Least share of the makespan that a loss must have to be reported.
MIN_REPORTED_SHARE = 0.01


def confidence_of(
    scenario: OpCase, overlap: bool, gain: float, *, verified: bool, outside: bool = False, promised: bool = True
) -> tuple[Confidence, str]:
    """Return the confidence and its reason: is the profile validated, and is the gain above its resolution?

    Confidence is at most medium ``outside`` the region in which the profile was fitted, and where a gain is not
    ``promised``: it is within the error of such predictions, or that was not measured.
    """
    level, reason = _confidence_inside(scenario, overlap, gain, verified)
    if not promised and level is Confidence.HIGH:
        level, reason = Confidence.MEDIUM, f"{reason}; but measured kernels do not promise it"
    if outside and level is Confidence.HIGH:
        level, reason = Confidence.MEDIUM, f"{reason}; but this lies outside what the profile was fitted to"
    if verified and scenario.shape.moved is not None and not is_judged(scenario):
        level = Confidence.MEDIUM if level is Confidence.HIGH else level
        reason += "; estimates chose what to simulate, and were not compared with simulations of such scenarios"
    return level, reason


def confidence_of_ops(
    scenario: Scenario, overlap: bool, gain: float, *, verified: bool, outside: bool, promised: bool
) -> tuple[Confidence, str]:
    """Return the least confidence of the ops with a collective, and its reason; of several at most medium."""
    moving = scenario.moving or scenario.cases[:1]
    each = [
        confidence_of(case, overlap, gain, verified=verified, outside=outside, promised=promised) for case in moving
    ]
    order = [Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH]
    level, reason = min(each, key=lambda one: order.index(one[0]))
    if len(moving) > 1 and level is Confidence.HIGH:
        return Confidence.MEDIUM, f"{reason}; but whole layers were not measured"
    return level, reason


def _confidence_inside(scenario: OpCase, overlap: bool, gain: float, verified: bool) -> tuple[Confidence, str]:
    gemm, gpu, shape = scenario.gemm_model, scenario.gpu.name, scenario.shape
    if not verified:
        return Confidence.LOW, "times are estimates, nothing was simulated"
    if shape.kernel is not None:
        if shape.moved is None:
            return Confidence.MEDIUM, "a kernel alone, simulated, but not validated here"
        return Confidence.MEDIUM, f"{shape.label} is simulated, but its kernel is not validated here"
    if shape.then is not None:
        return Confidence.MEDIUM, f"{shape.label} is simulated, but two kernels in a row are not validated here"
    if shape.compute is None:
        return Confidence.MEDIUM, "a collective alone: its schedule is simulated, but not validated here"
    if shape.pattern is Pattern.GEMM:
        level = Confidence.HIGH if gemm.validated else Confidence.LOW
        return level, f"a kernel alone, by the profile of {gpu} (+-{float(gemm.error):.0%})"
    resolution = float(gemm.resolution)
    clear = gain >= 1 + resolution if overlap else gain <= 1 / (1 + resolution)
    size = f"the difference is {'above' if clear else 'within'} what the profile resolves ({resolution:.0%})"
    if gemm.validated:
        level = Confidence.HIGH if clear else Confidence.LOW
        return level, f"the GEMM profile of {gpu} is validated against measurements, and {size}"
    sibling = _inherited(scenario.gpu, _error_path(scenario))
    if sibling:
        return Confidence.LOW, (
            f"how far GEMM times of {gpu} are off is not known: +-{float(gemm.error):.0%} was found for {sibling}, "
            f"whose numbers {gpu} changes; {size}"
        )
    level = Confidence.MEDIUM if clear else Confidence.LOW
    return level, f"the GEMM profile of {gpu} is not validated (+-{float(gemm.error):.0%}); {size}"


def _error_path(scenario: OpCase) -> str:
    """Return where the profile says how far GEMM times of ``scenario`` are off."""
    gemm = scenario.shape.gemm
    own = None if gemm is None else scenario.gpu.gemm.own_type(gemm.dtype)
    return "gemm.error" if own is None else f"gemm.{own.value}.error"


def marks_of(scenario: Scenario, promise: Promise | None = None) -> tuple[str, ...]:
    """Return warnings about the hardware profile: what is not validated, measured, capped or assumed."""
    gpu, fabric, marks = scenario.gpu, scenario.system.fabric, []
    cases = [case for case in scenario.cases if case.shape.gemm is not None and not case.gemm_model.validated]
    for case in {_error_path(case): case for case in reversed(cases)}.values():
        assert case.shape.gemm is not None
        dtype = case.shape.gemm.dtype.value
        sibling = _inherited(gpu, _error_path(case))
        whose = f" is {sibling}'s" if sibling else ""
        error = f"+-{float(case.gemm_model.error):.0%}{whose}"
        marks.append(f"{gpu.name} {dtype} GEMM is not validated against measurements: {error}")
    if promise is not None and promise.slower:
        longer = f"this may take up to {promise.slower:.0%} longer than simulated"
        marks.append(f"GEMMs beside copies on {gpu.name} are not measured: {longer}")
    if scenario.system.traffic is not None:
        marks.append("simulated times are beside the traffic of others; estimates and the lower bound are without it")
    marks.extend(_capped(gpu, fabric.links))
    cut = any(case.shape.pattern in OVERLAPPED_PATTERNS for case in scenario.cases)
    if not fabric.direct and cut and not passing_on_pays(scenario.cases[0]):
        marks.append(
            f"where more than {MOST_RANKS_SIMULATED} ranks see different fabrics, algorithms that pass blocks on are "
            "compared only if the file names them: explore { schedules serial, pipelined; algorithm direct, ring }"
        )
    if assumed := assumed_numbers(scenario):
        shown = ", ".join(assumed[:4]) + (f" and {len(assumed) - 4} more" if len(assumed) > 4 else "")
        marks.append(f"assumed, not measured: {shown}")
    return tuple(marks)


def assumed_numbers(scenario: Scenario) -> tuple[str, ...]:
    """Return the paths of the assumed numbers that something in the scenario reads: its kernels, or what it moves."""
    gpu, fabric, moves = scenario.gpu, scenario.system.fabric, bool(scenario.moving)
    read = {_error_path(case).rpartition(".")[0] for case in scenario.cases}
    unread = {
        **{f"gemm.{name}.": f"gemm.{name}" not in read for name in TYPES_WITH_CONSTANTS},
        "gemm.": all(case.shape.compute is None for case in scenario.cases),
        **dict.fromkeys(("dma.", "sm_copy.", "collectives."), not moves),
    }
    left_out = tuple(f"{gpu.name}.{group}" for group, out in unread.items() if out)
    devices = (gpu, *fabric.links, fabric.switch) if moves else (gpu,)
    notes = [note for device in devices if device is not None for note in device.provenance]
    return tuple(note.path for note in notes if note.origin is Origin.ASSUMED and not note.path.startswith(left_out))


def _inherited(device: Gpu | Link, path: str) -> str:
    """Return the device that a number of this one was copied from, empty if the number is its own."""
    return next((note.inherited for note in device.provenance if note.path == f"{device.name}.{path}"), "")


def _capped(gpu: Gpu, links: Sequence[Link]) -> Iterator[str]:
    """Yield rates that were copied from another device and now limit a faster link."""
    for link in links:
        achieved, engine = link.achieved_bytes_per_s, gpu.dma.bytes_per_s
        sibling = _inherited(link, "achieved")
        if sibling and not _inherited(link, "bandwidth"):
            yield (
                f"link {link.name} carries {rate_text(achieved)} of {rate_text(link.peak_bytes_per_s)}: what "
                f"{sibling} achieves, since it does not say its own"
            )
        gpu_sibling = _inherited(gpu, "dma.bandwidth")
        if gpu_sibling and engine < achieved:
            yield (
                f"a copy engine of {gpu.name} copies {rate_text(engine)}, as that of {gpu_sibling}, and is slower than "
                f"link {link.name} with {rate_text(achieved)}"
            )


def reasons_for(
    scenario: OpCase,
    candidates: Sequence[Candidate],
    finalists: tuple[Candidate, Candidate, Candidate],
    bound: Bound | None,
    results: tuple[Result | None, Result | None],
) -> tuple[str, ...]:
    """Return why the recommended schedule was chosen, in the order in which an engineer asks.

    ``finalists`` are the recommended candidate, the fastest serial one and the best overlapping one, ``results`` the
    simulations of the first two.
    """
    (recommended, serial, best), (result, serial_result) = finalists, results
    reasons: list[str] = []
    if result is not None and serial_result is not None:
        if scenario.is_algorithm_choice:
            reasons.extend(_algorithms(candidates, result))
        elif scenario.shape.moved is None:
            reasons.append("There is nothing to move, and so nothing to overlap in this workload.")
        else:
            reasons.extend(_exposure(serial_result))
            names = short_names((candidate.expression, candidate.choice) for candidate in candidates)
            chosen, other = (names.get(one.expression, one.expression) for one in (recommended, best))
            serially = recommended.is_serial
            reasons.extend(_why_serial(serial, best, other) if serially else _why_overlap(scenario, result, chosen))
        reasons.extend(_losses(result))
    reasons.extend(_about_the_baseline(scenario, serial))
    if scenario.shape.counts_on_device and scenario.explore.values("engine") == copying_sms(scenario.gpu):
        reasons.append(COPY_ENGINES_LEFT_OUT)
    if bound is not None:
        reasons.append(_limit(baseline_name(scenario.is_algorithm_choice, serial), serial, bound))
    return tuple(reasons)


EQUALLY_PREPARED = "Copies of other schedules begin when as long was spent on counting, laying out and packing rows."


def reasons_of_several(scenario: Scenario, serial: Candidate, bound: Bound | None) -> Iterator[str]:
    """Yield what the baseline of several ops is where it is not the library, and what no schedule can beat."""
    baseline = baseline_name(scenario.is_algorithm_choice, serial)
    moving = scenario.moving
    unfit = next(filter(None, map(library_unfit, moving)), None)
    if not serial.is_library and unfit is not None:
        yield f"The baseline is {baseline}, not the library: {unfit.message}."
    if scenario.exchange:
        named = any(case.shape.routing is not None and case.shape.routing.by for case in moving)
        why = "as the file says" if named else "the fastest known here; dispatch(..., by=NAME) says another"
        yield f"In the baseline rows go to experts by {scenario.exchange}, {why}. {EQUALLY_PREPARED}"
    if bound is not None:
        yield _limit(baseline, serial, bound)


def _limit(baseline: str, serial: Candidate, bound: Bound) -> str:
    limit = serial.best_us * TICKS_PER_US / bound.ticks
    term = next(term for term in bound.terms if term.name == bound.binding)
    why = f": {term.sentence}" if "ranks" in term.sentence and term.name == "links" else ""  # a cut is worth its place
    return (
        f"No schedule in the reach of Magus takes less than {ticks_text(bound.ticks)} ({bound.binding}{why}): "
        f"at most {limit:.2f}x over {baseline}."
    )


def price_of_simplicity(
    scenario: Scenario, candidates: Sequence[Candidate], recommended: Candidate, baseline: Candidate
) -> Iterator[str]:
    """Yield which schedule is faster than the simpler one that is recommended, by how much, and why that is chosen."""
    found = given_up(candidates, recommended)
    if found is None:
        return
    (fastest, faster), resolution = found, scenario.resolution
    names = short_names((candidate.expression, candidate.choice) for candidate in candidates)
    said = f"{names.get(fastest.expression, fastest.expression)} is {faster:.1%} faster than what is recommended"
    kept = recommended.expression == baseline.expression
    if fastest.side_by_side or fastest.is_outside:
        why = (
            "its kernels share the SMs, to which no profile is fitted" if fastest.side_by_side else "it is not explored"
        )
        yield f"{said}; {why}: never recommended."
    elif kept and faster > resolution:
        is_library = baseline.is_library and faster > MIN_GAIN
        why = (
            "that is within the error of the library's time"
            if is_library
            else f"a gain below {MIN_GAIN:.0%} does not count"
        )
        yield f"{said}; {why}: {baseline_name(scenario.is_algorithm_choice, baseline)} stays."
    elif faster > max(MIN_LEAD, resolution):  # it takes longer in the confirming simulation than in packets
        yield (
            f"{said}, which a last, finer simulation found slower; before it, both were within "
            f"{max(MIN_LEAD, resolution):.0%} of each other; {CHOSEN}."
        )
    else:
        yield f"{said}, within what the profile can resolve ({resolution:.0%}); {CHOSEN}."


def _about_the_baseline(scenario: OpCase, serial: Candidate) -> Iterator[str]:
    """Yield how the library's time is known, or why it is not the baseline."""
    library, unfit = library_time(scenario), library_unfit(scenario)
    if library is not None:
        yield library.sentence
    elif unfit is not None and scenario.shape.moved is not None:
        baseline = baseline_name(scenario.is_algorithm_choice, serial)
        yield f"The baseline is {baseline}, not the library: {unfit.message}."


def _algorithms(candidates: Sequence[Candidate], result: Result) -> Iterator[str]:
    """Yield how the algorithms compare, each at its best, and the variants that were tried."""
    best: dict[str, float] = {}
    for candidate in sorted(candidates, key=lambda candidate: candidate.best_us):
        if candidate.simulated_us is not None and candidate.choice is not None:
            best.setdefault(chosen_algorithm(candidate.choice), candidate.simulated_us)
    least: dict[str, float] = {}
    for candidate in candidates:
        if candidate.least_ticks is not None and candidate.choice is not None:
            name, least_us = chosen_algorithm(candidate.choice), candidate.least_ticks / TICKS_PER_US
            least[name] = min(least_us, least.get(name, least_us))
    ruled_out = (f"{name} at least {us_text(us)} on its busiest link" for name, us in least.items() if name not in best)
    times = ", ".join([*(f"{name} {us_text(time_us)}" for name, time_us in best.items()), *ruled_out])
    yield "There is nothing to overlap in this workload: the question is which algorithm."
    yield f"The algorithms, each at its best: {times}."
    which = f"the {NUM_VARIED_ALGORITHMS} fastest" if len(best) > NUM_VARIED_ALGORITHMS else "all"
    yield f"Of {which} the best plan was also tried by get and in other protocols, as far as engine and links allow."
    if result.comm_ticks and result.compute_ticks:
        moving, summing = ticks_text(result.comm_ticks), ticks_text(result.compute_ticks)
        yield f"Transfers are under way for {moving}, sums take {summing}."


def _exposure(serial: Result) -> Iterator[str]:
    if serial.comm_ticks and serial.compute_ticks:
        share = serial.exposed_ticks / serial.makespan_ticks
        communication, compute = ticks_text(serial.comm_ticks), ticks_text(serial.compute_ticks)
        yield (
            f"Run one after the other, {communication} of communication and {compute} of compute leave {share:.0%} of "
            "the time without compute."
        )


def _why_overlap(scenario: OpCase, result: Result, name: str) -> Iterator[str]:
    hidden, beside = result.overlap_efficiency, scenario.shape.pattern.independent
    if hidden is not None:
        how = " beside the GEMM, which needs nothing of it" if beside else ""
        yield (f"{name} hides {hidden:.0%} of its communication{how}; {ticks_text(result.exposed_ticks)} stay exposed.")
    if result.dil is None:
        return
    if beside:
        yield f"On the SMs that are left to it the GEMM takes {result.dil:.2f}x its time on all, if it runs alone."
    else:
        kernels = [stage.kernel for stage in scenario.shape.stages]
        operations = ["GEMM" if kernel is None else kernel.operation for kernel in kernels]
        one = f"the {operations[0]} takes {result.dil:.2f}x its"
        both = f"{' and '.join(operations)} take {result.dil:.2f}x their"
        yield f"Cut into parts, {one if len(operations) == 1 else both} whole time; the overlap pays for that."


def _why_serial(serial: Candidate, best: Candidate, name: str) -> Iterator[str]:
    if best.expression == serial.expression:
        yield "No overlap schedule is in the space that the file explores."
        return
    change = best.best_us / serial.best_us - 1
    if best.is_serial:
        yield f"The fastest schedule simulated, {name}, overlaps nothing either."
        return
    how = f"{change:.1%} slower than" if change > 0 else f"only {-change:.1%} faster than"
    yield f"The best overlap schedule simulated, {name}, is {how} serial ({us_text(best.best_us)})."


def _losses(result: Result) -> Iterator[str]:
    """Yield the largest losses of the waterfall."""
    waterfall = result.waterfall
    if waterfall is None:
        return
    named = (
        (waterfall.exposed_ticks, "exposed communication and slack of the bound"),
        (waterfall.decomposition_ticks, "decomposition of the kernel"),
        (waterfall.contention_ticks, "contention for shared memory"),
        (waterfall.launch_sync_ticks, "launches, engine setup and synchronization"),
    )
    least = MIN_REPORTED_SHARE * result.makespan_ticks
    losses = [f"{ticks_text(ticks)} {name}" for ticks, name in sorted(named, reverse=True) if abs(ticks) >= least]
    if losses:
        yield f"Above the bound: {', '.join(losses)}."


def headline_of(advice: Advice) -> str:
    """Return for instance ``flux 1.24x; torch_async_tp: no, 0.70x; a kernel for this plan 1.28x; bound 1.50x``.

    Gains of implementations are over the library with its call, others over the baseline. Empty where there is nothing
    to overlap.
    """
    case = advice.scenario.only_case
    if case is None or case.is_algorithm_choice or case.shape.moved is None:
        return ""
    return "; ".join(_levels(advice))


def _levels(advice: Advice) -> Iterator[str]:
    if advice.offers is not None:
        for offer in advice.offers.offers:
            promise = offer.promise
            word = {Verdict.SERIAL: "no, ", Verdict.WORTH_TRYING: "worth trying, "}.get(promise.verdict, "")
            yield f"{offer.name}{':' if word else ''} {word}{promise.speedup:.2f}x"
    is_baseline = advice.recommended.expression == advice.serial.expression
    best = _fastest_other_us(advice) if is_baseline else advice.recommended.best_us
    if best is not None:
        gain = f"the fastest other plan up to {advice.serial.best_us / best:.2f}x"
        yield f"a kernel for {gain if is_baseline else f'this plan {advice.gain:.2f}x'}"
    if advice.bound is not None:
        yield f"bound {advice.serial.best_us * TICKS_PER_US / advice.bound.ticks:.2f}x"


def _fastest_other_us(advice: Advice) -> float | None:
    """The time of the fastest simulated schedule but the baseline, None if there is no other."""
    others = (one for one in advice.candidates if one.expression != advice.serial.expression)
    return min((one.best_us for one in others if one.simulated_ticks is not None), default=None)
