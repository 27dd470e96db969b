"""The page about a training step: the layout to use, its stages over time, and the memory of each stage."""

from collections.abc import Iterator

from ... import __version__
from ...advisor.steps.answer import StepAdvice
from ...advisor.steps.flags import flags_of
from ...advisor.steps.outcome import StepOutcome
from ...advisor.steps.search import SHOWN
from ...compiler.ir import Settings
from ...compiler.resolve.values.device_numbers import StatedNumber
from ...compiler.text.units import bytes_text
from ..drawing.step_svg import memory_svg, parts_of, step_svg
from ..text.step import counted_text, figures_of, question_of, seconds_text, table_of
from .shell import Markup, assumptions, bullets, header, page_html, section, table, tag


def step_html(advice: StepAdvice, file: str, settings: Settings, numbers: tuple[StatedNumber, ...]) -> str:
    """Return the whole page about the answer on a step of ``file``; ``numbers`` are those of its devices."""
    return page_html(advice.scenario.name, _sections(advice, file, settings, numbers), advice.document())


def _sections(advice: StepAdvice, file: str, settings: Settings, numbers: tuple[StatedNumber, ...]) -> Iterator[Markup]:
    searched, chosen = advice.searched, advice.recommended
    yield header(advice.scenario.name, question_of(advice.scenario), file, settings)
    counted = counted_text(searched)
    if chosen is None:
        yield section("Layout", tag("p", f"None can be used. {counted}.", kind="verdict"), bullets(advice.marks))
        return
    said = f"{chosen.layout}, {chosen.words}: {seconds_text(chosen.run.makespan_ticks)} a step"
    speed = f"{chosen.tokens_per_gpu_s:,.0f} tokens/s/GPU, {bytes_text(chosen.memory_bytes)} of a GPU"
    yield tag("section", tag("p", said, kind="verdict"), tag("p", speed), bullets(advice.marks))
    yield section("Where the time goes", _wide(step_svg(chosen)), table(("", "time", ""), figures_of(chosen), words=1))
    yield section("Memory", _wide(memory_svg(chosen)), _memory(chosen))
    head, *rows = table_of(searched, chosen)
    note = tag("p", f"{counted}; the {min(SHOWN, len(searched.outcomes))} fastest and those of the file.", kind="faint")
    yield section("Layouts", table(head, rows, words=3, marked=(0,)), note)
    flags = [tag("p", f"{framework}: ", tag("code", flag)) for framework, flag in flags_of(chosen)]
    if flags:
        yield section("What to switch on", *flags)
    yield section("What this rests on", *assumptions(advice.scenario.system, None, numbers))
    yield tag("footer", tag("p", f"Magus {__version__}; {searched.layers_simulated} layers simulated", kind="faint"))


def _wide(drawing: str) -> Markup:
    return tag("div", Markup(drawing), kind="wide")


def _memory(outcome: StepOutcome) -> Markup:
    names = [name for name, _, _ in parts_of(outcome.memory[0])]
    rows = [
        (str(stage), *(bytes_text(size) for _, size, _ in parts_of(each)), bytes_text(each.total))
        for stage, each in enumerate(outcome.memory, 1)
    ]
    return table(("stage", *names, "all"), rows)
