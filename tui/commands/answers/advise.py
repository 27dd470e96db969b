"""``magus advise``: the answer with its proof."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ....advisor import AdviceOptions, Advisor, NoFeasibleSchedule
from ....advisor.answer.export import advice_document
from ....compiler.codes import Code
from ....compiler.ir import Cancelled, Kernels, Partition, Progress, Rejection, Scenario, ShouldStop
from ....compiler.planning.build import ScheduleError
from ....compiler.planning.knobs.base import value_text
from ....compiler.planning.knobs.execution import KERNEL, TILE
from ....compiler.text.diagnostics import listing
from ...drawing import Shows
from ...text.door import Exit, interruptible, print_json, put, say
from ...text.next_steps import next_steps
from ...text.ops import WorkloadAnswer, several_document, several_text
from ...text.progress import progress_line
from ...text.render import advice_text, brief_text
from ..inputs import ScenarioInput, placed, source_of
from ..out import NO_PICTURES, Pictures, seeds_of
from ..running import command, exit_code_if_strict
from .sweep import axis_over


@dataclass(frozen=True, slots=True)
class AdviseOptions:
    """Options of ``magus advise``: those of the advice, the exit code, and the form of the output.

    ``full`` is whether all is printed that is known. ``over`` is the parameter that the threshold of several ops is a
    value of, None: the only one with whole numbers.
    ``num_seeds`` are draws of the routing that are compared, 0: as many as the file says. ``given`` are those of
    ``--top``, ``--bespoke`` and ``--no-verify`` that were said, since a step has defaults of its own. Only tiles of the
    configurations of ``kernel`` are told to kernels, if it is given.
    """

    advice: AdviceOptions
    how: bool = False
    full: bool = False
    over: str | None = None
    num_seeds: int = 0
    pictures: Pictures = NO_PICTURES
    strict: bool = False
    as_json: bool = False
    given: frozenset[str] = frozenset()
    kernel: Path | None = None

    @property
    def about_one(self) -> str:
        """An option that is about one workload, empty without one."""
        wanted = {"--how": self.how, "--threshold": self.advice.threshold, "--sensitivity": self.advice.sensitivity}
        wanted["--seeds"], wanted["--trace"] = self.num_seeds > 0, self.pictures.trace is not None
        wanted["--kernel"] = self.kernel is not None
        wanted["--draw"] = self.pictures.shows is not Shows.TIMELINE
        return next((name for name, given in wanted.items() if given), "")


@command
def advise_file(source: ScenarioInput, options: AdviseOptions) -> Exit:
    """Print the advice for a scenario; where a file has several workloads, a table of all."""
    found, draw = source.read()
    step = found.step(source.workload)
    if step is not None:
        from .step import advise_step  # few files have one

        return advise_step(source, step, options)
    subjects = source.subjects(found)
    if len(subjects) == 1:
        with placed(found.span_of(subjects[0].name)):
            return _advise_one(source, subjects[0], options, partial(draw, subjects[0]))
    return advise_all(source, subjects, options, found.partitions)


def _in_its_tiles(scenario: Scenario, kernel: Path) -> Scenario:
    """Return ``scenario`` with the tiles to explore that the configurations of a Triton kernel have.

    Raises
    ------
    CompileError
        If the kernel is not recognised, or has no configurations.
    ScheduleError
        If the workload is not one GEMM, or the times of none of the tiles are known.
    """
    from ....compiler.targets.kernel_rewrite import tiles_of_kernel

    case, (file, _, name) = scenario.only_case, str(kernel).partition("::")
    if case is None or case.shape.gemm is None:
        message = f"{scenario.title} is not one GEMM with a collective, and a kernel computes one"
        raise ScheduleError(Rejection(Code.MGS541, message, "leave --kernel out, or say --workload"))
    listed = tiles_of_kernel(source_of(Path(file)), name)
    known = {block for block, _ in case.gpu.tiles_of(case.shape.gemm.dtype)}
    left_out = ", ".join(f"{rows} x {cols}" for rows, cols in listed if (rows, cols) not in known)
    tiles = tuple(tile for tile in listed if tile in known)
    message = f"tiles of {left_out}: their times are not known on {case.gpu.name}"
    if not tiles:
        raise ScheduleError(Rejection(Code.MGS541, message, f"known are {listing(map(value_text, sorted(known)))}"))
    if left_out:
        say(f"magus: left out: {message}")
    kernels = scenario.explore.values(KERNEL.word) or (Kernels.PERSISTENT,)
    return replace(scenario, explore=scenario.explore.asking(TILE.word, tiles).asking(KERNEL.word, kernels))


def _advise_one(
    source: ScenarioInput, scenario: Scenario, options: AdviseOptions, draw: Callable[[int], Scenario]
) -> Exit:
    axis, seeds = None, seeds_of(scenario, options.num_seeds)
    if options.num_seeds and scenario.drawn is None:
        say("magus: --seeds draws the routing, and none is drawn here: routing=power_law(1.2) or sampled(1.9)")
        return Exit.USAGE
    if options.advice.threshold and scenario.only_case is None:
        axis = axis_over(source, options.over)
        if axis is None:
            return Exit.USAGE
    if options.kernel is not None:
        scenario = _in_its_tiles(scenario, options.kernel)
    advisor = Advisor.load()
    with progress_line() as progress, interruptible() as stopped:
        advice = advisor.recommend(scenario, options.advice, progress=progress, should_stop=stopped)
        if axis is not None and not advice.interrupted:
            from ....advisor.sensitivity.several import threshold_of_several

            with suppress(Cancelled):
                advice = replace(advice, threshold=threshold_of_several(advice, axis, progress, stopped))
        if seeds and not advice.interrupted:
            from ....advisor.sensitivity.several import over_draws

            with suppress(Cancelled):
                advice = replace(advice, draws=over_draws(advice, seeds, draw, progress, stopped))
    drawn = options.pictures.save_advice(advice)
    todo = next_steps(advice, source.words, how=options.how)
    if options.as_json:
        steps = [{"what": step.what, "command": step.command} for step in todo]
        print_json({**advice_document(advice, how=options.how), "next": steps})
    else:
        full = advice_text(advice, options.advice.top, how=options.how, todo=todo) if options.full else ""
        put(full or brief_text(advice, how=options.how, todo=todo))
    if advice.interrupted and (options.advice.within_s is None or stopped()):
        return Exit.INTERRUPTED
    return max(drawn, exit_code_if_strict(scenario, options.strict, advice.outside_calibration))


def advise_all(
    source: ScenarioInput,
    scenarios: Sequence[Scenario],
    options: AdviseOptions,
    partitions: Sequence[Partition] = (),
) -> Exit:
    """Advise on one workload after the other: each has the whole time, and what fails leaves the others."""
    if options.about_one:
        names = ", ".join(each.title for each in scenarios)
        say(f"magus: {options.about_one} is about one workload; --workload says which: {names}")
        return Exit.USAGE
    advisor = Advisor.load()
    found: list[WorkloadAnswer] = []
    with progress_line() as progress, interruptible() as stopped:
        for scenario in scenarios:
            if stopped():
                break
            answer = _answer(advisor, scenario, options, progress, stopped)
            if answer is not None:
                found.append(answer)
    if not found:
        raise Cancelled
    known = [answer.advice for answer in found if answer.advice is not None]
    if known and options.pictures.wanted:
        from ...drawing.svg import compared_svg

        options.pictures.save_drawing(compared_svg(known), "these workloads")
    if options.as_json:
        print_json(several_document(found, partitions))
    else:
        put(several_text(found, replace(source, workload=None).words, partitions))
    if stopped():
        say(f"magus: stopped early: {len(found)} of {len(scenarios)} workloads")
        return Exit.INTERRUPTED
    codes = [answer.exit_code for answer in found]
    codes += [_strict_code(answer, options.strict) for answer in found]
    return max(codes)


def _strict_code(answer: WorkloadAnswer, strict: bool) -> Exit:
    if answer.advice is None:
        return Exit.DONE
    return exit_code_if_strict(answer.scenario, strict, answer.advice.outside_calibration)


def _answer(
    advisor: Advisor, scenario: Scenario, options: AdviseOptions, progress: Progress, stopped: ShouldStop
) -> WorkloadAnswer | None:
    """Return the advice for one workload, or why there is none; None if it was stopped before anything was found."""
    if scenario.system.replay is not None:
        return WorkloadAnswer(scenario, None, "its system replays the profile of one schedule")
    try:
        advice = advisor.recommend(scenario, options.advice, progress=progress, should_stop=stopped)
        return WorkloadAnswer(scenario, advice)
    except NoFeasibleSchedule as error:
        return WorkloadAnswer(scenario, None, f"no schedule is feasible: {'; '.join(error.reasons)}", Exit.NOT_FEASIBLE)
    except ScheduleError as error:
        return WorkloadAnswer(scenario, None, error.rejection.message, Exit.INPUT)
    except Cancelled:
        return None
