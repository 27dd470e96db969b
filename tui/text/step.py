"""A training step as plain text: one schedule in figures, or layouts compared."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from ...advisor.candidates.advice import Advice
from ...advisor.measured.traces.replay import ReplayedStep
from ...advisor.measured.traces.times import AS_IT_RAN, KindTimes, RankTimes
from ...advisor.steps.answer import StepAdvice
from ...advisor.steps.outcome import StepOutcome, memory_limit
from ...advisor.steps.plans import flags_of
from ...advisor.steps.search import SHOWN, TIE, recommended
from ...advisor.steps.space import Searched
from ...compiler.ir import TICKS_PER_US, Settings
from ...compiler.ir.step import StepScenario, StepSchedule
from ...compiler.text.units import bytes_text, seconds_text, us_text
from ...simcore.figures.result import Result
from .door import bullet, hanging, table_lines, wrapped

# A step of a run as plain text and as JSON: as measured, as simulated, as it could be.

MAX_REASONS = 6


def replay_text(step: ReplayedStep, results: Sequence[Result], advices: Sequence[Advice]) -> str:
    """Return the times of a step, and where those of the simulation differ from the measured ones.

    ``results`` and ``advices`` are those of its parts; parts without advice stay as they ran, and there may be none.
    """
    simulated = _simulated_us(step, results)
    rows: list[tuple[str, ...]] = [
        ("as measured", us_text(step.measured_us), "", f"{us_text(step.idle_us)} without a kernel{_waited(step)}"),
        ("as simulated", us_text(simulated), _error(simulated, step.measured_us), "in the order in which it ran"),
    ]
    if advices:
        possible, schedules = _possible(step, results, advices)
        rows.append(("as it could be", us_text(possible), f"{simulated / possible:.2f}x", _how(schedules)))
    lines = [*wrapped(step.title), "", *_table(rows), ""]
    kinds = [(each.kind, str(each.count), *_times(each)) for each in step.kinds(results)]
    lines += _table([("kernels", "count", "measured", "simulated", "error"), *kinds])
    ranks = [
        (f"rank {each.rank}", *_times(each), us_text(each.waited_us), us_text(each.simulated_waited_us))
        for each in step.rank_times(results)
    ]
    if ranks:
        lines += ["", *_table([("ranks", "measured", "simulated", "error", "waits", "simulated"), *ranks])]
    if advices:
        reasons = dict.fromkeys(reason for advice in advices for reason in advice.reasons)
        lines += ["", *(line for reason in list(reasons)[:MAX_REASONS] for line in bullet("-", reason))]
    lines += ["", *(line for doubt in step.doubts for line in bullet("!", doubt))]
    return "\n".join(lines) + "\n"


def _waited(step: ReplayedStep) -> str:
    return f", {us_text(step.waited_us)} waiting" if step.waited_us else ""


def _how(schedules: Sequence[str]) -> str:
    """By which schedules parts are as fast as they can be."""
    faster = [each for each in schedules if each != AS_IT_RAN]
    if not faster:
        return "as it ran: nothing recommended is faster"
    if len(schedules) == 1:
        return f"by {faster[0]}, as simulated"
    return f"{len(faster)} of {len(schedules)} parts by schedules that are faster, as simulated"


def replay_document(step: ReplayedStep, results: Sequence[Result], advices: Sequence[Advice]) -> dict[str, Any]:
    """Return the document of ``magus replay --json``; what was not computed is null."""
    possible, schedules = _possible(step, results, advices) if advices else (None, [None] * len(step.parts))
    return {
        "schema": "magus-replay/1",
        "trace": step.title,
        "measured_us": step.measured_us,
        "simulated_us": _simulated_us(step, results),
        "possible_us": possible,
        "parts": [
            {
                "workload": part.scenario.name,
                "measured_us": part.measured_us,
                "simulated_us": result.makespan_us,
                "schedule": schedule,
            }
            for part, result, schedule in zip(step.parts, results, schedules, strict=True)
        ],
        "idle_us": step.idle_us,
        "waited_us": step.waited_us,
        "kernels": list(map(asdict, step.kinds(results))),
        "ranks": list(map(asdict, step.rank_times(results))),
        "doubts": list(step.doubts),
    }


def _simulated_us(step: ReplayedStep, results: Sequence[Result]) -> float:
    return step.total_us([each.makespan_ticks / TICKS_PER_US for each in results])


def _possible(step: ReplayedStep, results: Sequence[Result], advices: Sequence[Advice]) -> tuple[float, list[str]]:
    """The time in us if each part takes the shorter of what is recommended and of how it ran, and the names of both.

    Kernels of a run share SMs, to which no profile is fitted, so that its order is never recommended.
    """
    choices = [(each.makespan_ticks / TICKS_PER_US, AS_IT_RAN) for each in results]
    for place, advice in enumerate(advices):
        choices[place] = min(choices[place], (advice.recommended.best_us, advice.recommended.expression))
    return step.total_us([time for time, _ in choices]), [schedule for _, schedule in choices]


def _error(simulated: float, measured: float) -> str:
    return f"{simulated / measured - 1:+.1%}" if measured else ""


def _times(each: KindTimes | RankTimes) -> tuple[str, ...]:
    """As measured, as simulated, and the error of that."""
    error = _error(each.simulated_us, each.measured_us)
    return us_text(each.measured_us), us_text(each.simulated_us), error


def _table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table whose first column is words, and so is what stands behind four cells."""
    return table_lines([(row[:3], row[3]) if len(row) == 4 else (row, "") for row in rows], (0,))


def question_of(scenario: StepScenario) -> str:
    """What is asked about a step, in a line."""
    step = scenario.step
    what = step.about or "a training step"
    gpus = f"{scenario.system.num_ranks} x {scenario.system.gpu.name}"
    return f"{scenario.name}: {what}; {step.sequences} sequences of {step.length} on {gpus}"


def outcome_text(outcome: StepOutcome, marks: Sequence[str] = ()) -> str:
    """Return one schedule of a step in figures."""
    run, scenario = outcome.run, outcome.scenario
    layers = [sum(run.chunks[rank :: scenario.num_stages]) for rank in range(scenario.num_stages)]
    stages = "" if scenario.num_stages == 1 else f", {scenario.num_stages} stages of {_span(layers)} layers"
    count, how = scenario.step.microbatches, ", ".join(filter(None, (outcome.layout, outcome.words)))
    lines = [
        *wrapped(question_of(scenario)),
        *wrapped(f"{outcome.schedule.name}: {how}{stages}, {count} microbatch{'es' if count > 1 else ''}"),
        "",
    ]
    rows = figures_of(outcome)
    if run.pipeline.period_ticks is not None:
        lines += wrapped(f"{run.pipeline.simulated} microbatches are run; the others repeat to the tick.")
    width = max(len(name) for name, *_ in rows)
    lines += [f"{name:<{width}}  {value:>9}  {note}" for name, value, note in rows]
    lines += ["", *_memory_lines(outcome)]
    if not outcome.fits and len(outcome.memory) > 1:
        lines += hanging(f"{stages_text([stage.total for stage in outcome.memory])}.", 8, "Stages: ")
    lines += [line for mark in marks for line in bullet("!", mark)]
    return "\n".join(lines) + "\n"


def figures_of(outcome: StepOutcome) -> list[tuple[str, str, str]]:
    """Return what the time of a step consists of: name, time, and what it is."""
    run = outcome.run
    text = partial(seconds_text, whole_ticks=run.makespan_ticks)
    passes = run.pipeline.makespan_ticks - run.bubble_ticks
    return [
        ("passes", text(passes), "forward and backward, the mean of the stages"),
        ("bubble", text(run.bubble_ticks), f"{run.bubble:.1%}: a stage waits for others"),
        ("gradients", text(run.gradients_ticks), "summed behind the passes"),
        ("weights", text(run.weights_ticks), "gathered behind the optimizer"),
        ("optimizer", text(run.optimizer_ticks), "update of all weights"),
        ("step", text(run.makespan_ticks), f"{outcome.tokens_per_gpu_s:,.0f} tokens/s/GPU"),
    ]


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _memory_lines(outcome: StepOutcome) -> Iterator[str]:
    most = max(outcome.memory, key=lambda stage: stage.total)
    which = f"stage {outcome.memory.index(most) + 1} of {len(outcome.memory)}: " if len(outcome.memory) > 1 else ""
    parts = {
        "weights": most.weights,
        "gradients": most.gradients,
        "optimizer": most.optimizer,
        "activations": most.activations,
        "for a while": most.transient,
    }
    said = ", ".join(f"{name} {bytes_text(size)}" for name, size in parts.items() if size)
    limit = memory_limit(outcome.scenario)
    fits = "fits into" if outcome.fits else "DOES NOT FIT into"
    yield from hanging(
        f"{bytes_text(most.total)}, {fits} {bytes_text(limit)} ({which}{said}; 8 % and 3 GiB beside).", 8, "Memory: "
    )


def searched_text(scenario: StepScenario, searched: Searched, marks: Sequence[str] = (), shown: int = SHOWN) -> str:
    """Return the answer about a step: which layout, what it costs, what is exposed, how to switch it on.

    If a framework is to carry it out, its settings alone are shown. ``shown`` is how many layouts the table has beside
    those of the file.
    """
    return "\n".join(_searched(scenario, searched, marks, shown)) + "\n"


def _searched(scenario: StepScenario, searched: Searched, marks: Sequence[str], shown: int) -> Iterator[str]:
    yield from wrapped(question_of(scenario))
    yield from wrapped(
        f"{counted_text(searched)}; {len(searched.outcomes)} simulated from {searched.layers_simulated} layers"
    )
    yield ""
    chosen = recommended(searched)
    if chosen is None:
        yield from nothing_lines(searched)
        return
    if searched.interrupted:
        yield from wrapped("Stopped early: the best of those that were simulated.")
    yield from aligned(table_of(searched, chosen, shown))
    if not all(each.fits for each in searched.declared):
        yield from wrapped(f"{TOO_LARGE} does not fit into {bytes_text(memory_limit(scenario))}.")
    yield ""
    yield from hanging(_exposed(chosen), 9, "Exposed: ")
    yield from _memory_lines(chosen)
    for framework, flags in flags_of(chosen):
        if searched.framework in ("", framework):
            yield from hanging(flags, 4, f"{framework}: ")
    yield from _beyond(searched, chosen)
    for mark in marks:
        yield from bullet("!", mark)


def _beyond(searched: Searched, chosen: StepOutcome) -> Iterator[str]:
    """What the framework has not that is faster, by more than a tie."""
    best = min(searched.outcomes, key=lambda each: each.run.makespan_ticks)
    gain = chosen.seconds / best.seconds - 1
    if gain > TIE:
        what = f"{best.layout}, {best.words}: {seconds_text(best.run.makespan_ticks)}"
        yield from wrapped(f"{searched.framework} has not {what}, at most {gain:.1%} faster.")


def counted_text(searched: Searched) -> str:
    """How many layouts there are, and what became of them."""
    plural = "s" if searched.num_layouts != 1 else ""
    divide, fit = ("does" if count == 1 else "do" for count in (searched.impossible, searched.too_large))
    slower = f", {searched.slower} {'is' if searched.slower == 1 else 'are'} slower" if searched.slower else ""
    return (
        f"{searched.num_layouts} layout{plural}: "
        f"{searched.impossible} {divide} not divide, {searched.too_large} {fit} not fit{slower}"
    )


def _exposed(outcome: StepOutcome) -> str:
    run = outcome.run
    text = partial(seconds_text, whole_ticks=run.makespan_ticks)
    parts = f"bubble {text(run.bubble_ticks)}, gradients and weights {text(run.gradients_ticks + run.weights_ticks)}"
    whole = text(run.makespan_ticks)
    return f"{parts}, optimizer {text(run.optimizer_ticks)} of {whole}; copies within layers are in them."


FIGURES = ("tok/s/GPU", "memory", "bubble")
"""Columns of every table of outcomes."""


def shown_of(searched: Searched, chosen: StepOutcome, shown: int = SHOWN) -> tuple[StepOutcome, ...]:
    """Return what a table shows, each once: the chosen outcome, the fastest others, and the schedules of the file."""
    others = [each for each in searched.outcomes if each is not chosen and declared_as(each, searched) is None]
    same = declared_as(chosen, searched)
    return (chosen, *others[: shown - 1], *(each for each in searched.declared if each is not same))


TOO_LARGE = "x"
"""The mark of a schedule of the file that does not fit into memory."""


def table_of(searched: Searched, chosen: StepOutcome, shown: int = SHOWN) -> list[tuple[str, ...]]:
    """Return the table of layouts with its head; the first row below it is the chosen one."""
    best, declared = chosen.run.makespan_ticks, searched.declared
    rows: list[tuple[str, ...]] = [("", "layout", "schedule", "step", "", *FIGURES)]
    for each in shown_of(searched, chosen, shown):
        change = each.run.makespan_ticks / best - 1
        mark = ">" if each is chosen else TOO_LARGE if not each.fits else "=" if abs(change) <= TIE else ""
        same = declared_as(each, searched) if each is chosen else each if each in declared else None
        name = each.words if same is None else same.schedule.name
        alone = each in searched.outcomes[searched.contended :] and each is not chosen  # it takes no less than that
        more = "" if each is chosen else f"{'from ' if alone else ''}{change:+.1%}"
        rows.append((mark, each.layout, name, seconds_text(each.run.makespan_ticks), more, *_figures(each)))
    return rows


def _figures(outcome: StepOutcome) -> tuple[str, str, str]:
    memory = f"{outcome.memory_bytes / 2**30:.1f} GiB"
    return f"{outcome.tokens_per_gpu_s:,.0f}", memory, f"{outcome.run.bubble:.1%}"


def swept_table(points: Sequence[tuple[Settings, StepAdvice]]) -> list[tuple[str, ...]]:
    """Return the table of the recommended layouts under several settings, with its head."""
    names = list(dict.fromkeys(name for settings, _ in points for name, _ in settings))
    rows: list[tuple[str, ...]] = [(*names, "layout", "schedule", "step", *FIGURES)]
    for settings, advice in points:
        values, each = tuple(dict(settings)[name] for name in names), advice.recommended
        if each is None:
            why = "no layout divides" if advice.searched.nearest is None else "no layout fits"
            rows.append((*values, "-", why, "-", "-", "-", "-"))
        else:
            rows.append((*values, each.layout, each.words, seconds_text(each.run.makespan_ticks), *_figures(each)))
    return rows


def aligned(rows: Sequence[Sequence[str]], words: int = 3) -> Iterator[str]:
    """Yield the lines of a table whose first ``words`` columns are words and the others numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        line = (f"{cell:<{width}}" if place < words else f"{cell:>{width}}" for place, (cell, width) in cells)
        yield " ".join(line).rstrip()


def declared_as(outcome: StepOutcome, searched: Searched) -> StepOutcome | None:
    """Return the schedule of the file that is the same in another name, if there is one."""

    def what(each: StepOutcome) -> tuple[object, ...]:
        return each.layout, replace(each.schedule, name=""), each.scenario.step, each.scenario.system

    return next((each for each in searched.declared if what(each) == what(outcome)), None)


def key_of(outcome: StepOutcome) -> str:
    """Return what tells a layout with its schedule from all others of a search."""
    return " ".join((*(f"{name}={value}" for name, value in outcome.settings), outcome.schedule.name))


def nothing_lines(searched: Searched) -> Iterator[str]:
    """Yield why no layout is recommended, and the one that needs least memory."""
    if searched.interrupted:
        yield from wrapped("Stopped before any layout was simulated.")
        return
    if searched.outcomes:
        each = searched.outcomes[0]
        what = f"{each.layout}, {each.words}: {seconds_text(each.run.makespan_ticks)}"
        yield from wrapped(f"{searched.framework} has no layout of those that fit. The fastest of all is {what}.")
        return
    if searched.nearest is None:
        why = f" For instance, {searched.reason}." if searched.reason else ""
        yield from wrapped(f"No layout divides the ranks, the layers and the microbatches.{why}")
        return
    settings, schedule, stages = searched.nearest
    nearest = f"The nearest needs {bytes_text(max(stages))}: {how_text(settings, schedule)}."
    yield from wrapped(f"No layout fits into memory. {nearest}")
    if len(stages) > 1:
        yield from wrapped(f"Of its stages, {stages_text(stages)}.")


def how_text(settings: Settings, schedule: StepSchedule) -> str:
    """A layout with its schedule, as the file sets them."""
    said = ", ".join(f"{name} = {value}" for name, value in settings) or "the file as it stands"
    return f"{said}, {schedule.pipeline.expression}, zero {schedule.zero}, keep {schedule.keep}"


MOST_STAGES = 6
"""Stages that are named with their memory; of more the largest are."""


def stages_text(stages: Sequence[int]) -> str:
    """The memory of each stage, of many the largest."""
    named = sorted(range(len(stages)), key=lambda place: (-stages[place], place))[:MOST_STAGES]
    said = ", ".join(f"{place + 1} needs {bytes_text(stages[place])}" for place in sorted(named))
    return said + (f", {len(stages) - len(named)} others less" if len(stages) > len(named) else "")
