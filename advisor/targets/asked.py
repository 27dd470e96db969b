"""The file of an answer about a model: what to switch on first, as its framework reads it."""

from ... import __version__
from ..candidates.advice import Advice
from ..layers.transformer_engine import AG_OFF, NAME
from ..policy.table import SweepPoint, table_of
from ..questions.ask import ModelAnswer
from .base import comments, refused
from .megatron import MEGATRON, TeOverlap, megatron_text, python_text, te_overlap


def file_of(answer: ModelAnswer) -> str:
    """Return the file that switches on ``answer.first``, with its gain over what runs today.

    Raises
    ------
    Refused
        If nothing pays, or the passes of a layer want what one setting cannot say.
    """
    first, question = answer.first, answer.question
    if first is None:
        title = answer.framework.title
        raise refused(f"nothing that {title} can switch on pays here", "leave -o out: there is no file")
    interval = first.promise.interval
    ends = "error not measured" if interval is None else f"{interval[0]:.2f}x to {interval[1]:.2f}x"
    head = comments(
        f"Magus {__version__}, magus ask --for {question.framework}",
        f"{answer.framework.title} {answer.framework.version}: {question.model.name} on {question.gpu}",
        f"{first.switch.what}: {first.promise.speedup:.2f}x over today ({ends})",
        f"costs: {first.switch.costs}",
    )
    if first.switch.offer != NAME:
        return f"{head}{first.setting}\n"
    overlap = _of_passes([_overlap(advice) for advice in answer.advice])
    return head + (megatron_text(overlap) if question.framework == MEGATRON.name else python_text(overlap))


def _overlap(advice: Advice) -> TeOverlap:
    """What Transformer Engine should do in one pass."""
    point = SweepPoint((), advice, advice.recommended.joint, {})
    return te_overlap(table_of((), [advice], (point,), simulated=True), {"te": "2"})


def _of_passes(passes: list[TeOverlap]) -> TeOverlap:
    """One file of the forward and the backward pass."""
    if len({AG_OFF in each.flags for each in passes}) > 1:
        message = "one pass of the layer pays with its gathers overlapped, the other without: one flag is for both"
        raise refused(message, "magus export --workload NAME writes the file of one pass")
    layers = {name: settings for each in passes for name, settings in each.layers.items()}
    flags = dict.fromkeys(flag for each in passes for flag in each.flags)
    return TeOverlap(layers, tuple(flags), tuple(dict.fromkeys(why for each in passes for why in each.why)))
