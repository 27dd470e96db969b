"""What to do with an answer: what can be switched on today, and commands to copy."""

import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from ...advisor.candidates.advice import Advice
from ...advisor.candidates.candidate import Candidate
from ...advisor.implementations.offers import Offer
from ...advisor.layers.transformer_engine import NAME as TE
from ...advisor.sensitivity.threshold import num_rows
from ...compiler.ir import Implementation, Plan
from ...compiler.planning.build import expression_of
from ...compiler.resolve.expect.expectation import Verdict
from ...compiler.resolve.schedules.implementation import shipped_implementations
from ...compiler.targets.triton import unwritable
from ...runtime.report import reject_run
from .door import bullet, columns
from .ops import block_of_schedule

PLAN = "plan.json"
"""The file that the commands write the plan to."""
MOST_SPELLED = 10_000
"""Characters of an expression that is written out: trees of 128 GPUs fill a thousand lines, those of 170 and more are
longer than a shell lets an argument be (128 KiB)."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """What to do, and the command that does it or shows more of it, as words of a shell.

    ``by_command`` is whether the command is all that is to do; else it shows how that works.
    """

    what: str
    words: tuple[str, ...]
    by_command: bool = True

    @property
    def command(self) -> str:
        """The command as one line to copy."""
        return shlex.join(self.words)


def next_steps(advice: Advice, source: Sequence[str], *, how: bool) -> tuple[NextStep, ...]:
    """Return what to do next, at most five things.

    ``source`` are the words that name the scenario on the command line: the file, its workload and settings. ``how`` is
    whether the answer tells already how to carry its schedule out.
    """
    return tuple(_steps(advice, tuple(source), how))


def _steps(advice: Advice, source: tuple[str, ...], how: bool) -> Iterator[NextStep]:
    if advice.recommended.several is not None:
        yield from _steps_of_several(advice, source, how)
        return
    scenario, chosen = advice.case, advice.recommended
    offer = None if advice.offers is None else _nearest(advice.offers.offers)
    if offer is not None and advice.offers is not None:
        yield _switch_on(advice, offer, advice.offers.library, source)
    schedule = chosen.expression
    if not chosen.is_library:
        if len(schedule) <= MOST_SPELLED:
            words = _magus("plan", *source, "--schedule", schedule, "--format", "json", "-o", PLAN)
            yield NextStep("write the plan", words)
        else:
            what = f"write its plan to {PLAN} with key o of magus tui; its expression is in --json"
            yield NextStep(what, _magus("tui", *source), by_command=False)
        schedule = PLAN
    unfit = unwritable(scenario, chosen.schedule) if scenario.shape.gemm and not chosen.is_serial else None
    if unfit is not None:
        what = f"write its kernel by hand: magus plan --format triton cannot ({unfit.message})"
        yield NextStep(what, _magus("plan", *source, "--schedule", schedule, "--format", "steps"), by_command=False)
    plan = Plan.of_one(scenario.name, scenario.shape, chosen.schedule)
    if reject_run(scenario.system, plan) is None:
        yield NextStep("check it with real data", _magus("run", *source, "--schedule", schedule))
    if not how:
        yield NextStep("tell it step by step", _magus("advise", *source, "--how"))
    overlaps = not all(candidate.is_serial for candidate in advice.candidates)
    if advice.verdict is Verdict.SERIAL and advice.threshold is None and overlaps and num_rows(scenario.shape):
        yield NextStep("find the M from which overlap pays", _magus("advise", *source, "--threshold"))


def _steps_of_several(advice: Advice, source: tuple[str, ...], how: bool) -> Iterator[NextStep]:
    best = advice.recommended
    granularity = () if best.unit_bytes == advice.scenario.gpu.line_bytes else ("--granularity", "packet")
    first = "with the block in the file, " if block_of_schedule(advice) else ""
    simulate = _magus("simulate", *source, "--schedule", best.expression, *granularity)
    yield NextStep(f"{first}see what runs when", simulate)
    offer = advice.offer(TE)
    if offer is not None and offer.promise.verdict is not Verdict.SERIAL:
        export = _magus("export", *source, "--to", "megatron", "-o", "overlap.yaml")
        yield NextStep("write the table for Transformer Engine", export)
    if not how:
        yield NextStep("tell it step by step", _magus("advise", *source, "--how"))


def _magus(*words: str) -> tuple[str, ...]:
    return ("magus", *words)


def _nearest(offers: Sequence[Offer]) -> Offer | None:
    """Return the fastest implementation that pays, else the fastest that is worth trying; offers are by time."""
    gains = (offer for offer in offers if offer.promise.verdict in (Verdict.OVERLAP, Verdict.WORTH_TRYING))
    return min(gains, key=lambda offer: offer.promise.verdict is not Verdict.OVERLAP, default=None)


def _switch_on(advice: Advice, offer: Offer, library: str, source: tuple[str, ...]) -> NextStep:
    """Return an implementation with the schedule that it carries out."""
    method = _named(advice, offer.name).method_of(advice.case.shape)
    assert method is not None, "an offer has a predicted time"
    schedule = expression_of(method.choice)
    word = "switch on" if offer.promise.verdict is Verdict.OVERLAP else "try"
    what = f"{word} {offer.name}, {offer.promise.speedup:.2f}x over {library}; it works as {schedule}"
    return NextStep(what, _magus("plan", *source, "--schedule", schedule, "--format", "steps"), by_command=False)


def _named(advice: Advice, name: str) -> Implementation:
    return next(each for each in _known(advice) if each.name == name)


def next_lines(steps: Sequence[NextStep]) -> Iterator[str]:
    """Yield what to do next; commands can be copied even where they take several lines."""
    for step in steps:
        if not step.by_command:
            yield from bullet("-", f"{step.what}.")
            continue
        lines = list(_command_lines(step.words))
        comment = f"  # {step.what}"
        fits = len(lines) == 1 and len(lines[0]) + len(comment) + 2 <= columns()
        yield from (f"  {line}" for line in (lines if not fits else [lines[0] + comment]))


def _command_lines(words: Sequence[str]) -> Iterator[str]:
    """Yield a command, with a backslash at the end of each line that goes on with another option.

    Options stay whole but for an expression that fits no line: a line may end between its arguments.
    """
    width, line = columns() - 6, ""
    for option in _options(words):
        longer = f"{line} {option}" if line else option
        if line and len(longer) > width:
            yield f"{line} \\"
            longer = f"  {option}"
            if len(longer) > width and option.startswith("--schedule "):
                *before, longer = wrap(option, width, initial_indent="  ", subsequent_indent="    ", **_WHOLE_WORDS)
                yield from before
        line = longer
    yield line


def _options(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command, quoted, an option together with its value."""
    left = deque(map(shlex.quote, words))
    while left:
        word = left.popleft()
        is_option = word.startswith("-") and word != "-"
        yield f"{word} {left.popleft()}" if is_option and left and not left[0].startswith("-") else word


_WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


_WORDS = {Verdict.OVERLAP: "pays", Verdict.WORTH_TRYING: "worth trying", Verdict.SERIAL: "does not pay"}


def shipped_lines(advice: Advice, candidate: Candidate) -> Iterator[str]:
    """Yield a sentence for each known implementation, those with the candidate's template first, then the fastest."""
    offers = advice.offers
    if offers is None or not offers.offers:
        yield "No shipped implementation is known for this GPU, this type and this pattern."
        return
    methods = {implementation.name: implementation for implementation in _known(advice)}
    reported = []
    for place, offer in enumerate(offers.offers):
        method = methods[offer.name].method_of(advice.case.shape)
        assert method is not None, "an offer has a predicted time"
        alike = candidate.choice is not None and candidate.choice.template == method.choice.template
        gain = f"{_WORDS[offer.promise.verdict]}, {offer.promise.speedup:.2f}x over {offers.library}"
        how = f"it works as {expression_of(method.choice)}{', the template of this schedule' if alike else ''}"
        reported.append((not alike, place, f"{offer.name}: {gain}; {how}."))
    yield from (sentence for _, _, sentence in sorted(reported))


def _known(advice: Advice) -> tuple[Implementation, ...]:
    return (*advice.scenario.explore.implementations, *shipped_implementations(advice.scenario.system))
