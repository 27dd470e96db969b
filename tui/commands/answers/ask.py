"""``magus ask``: what to switch on for a model, with a framework."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....advisor import Advisor, RequestError
from ....advisor.answer.stages import DEFAULT_TOP
from ....advisor.questions.ask import QUICK, LayoutAnswer, ModelAnswer, ask
from ....advisor.questions.layouts import layout_question
from ....advisor.questions.question import ModelQuestion, model_question
from ....compiler.codes import Code
from ...text.ask import AskedModels, ask_text, layouts_text, many_text
from ...text.door import Exit, interruptible, put_text, say
from ...text.progress import progress_line
from ...text.render import advice_text
from ..inputs import reporting, save, say_rejection
from ..running import command

if TYPE_CHECKING:
    from ....advisor.questions.many import ManyAnswers


@command
def answer(asked: Mapping[str, Any], *, workers: int, full: bool, as_json: bool, out: Path | None = None) -> Exit:
    """Print the answer to ``model_question(**asked)``; ``full``: with all that ``magus advise`` says of the layer.

    With ``gpus`` it is that to ``layout_question(**asked)``. The file that switches on what pays is written to ``out``.
    """
    options = replace(QUICK, workers=workers)
    if "gpus" in asked:
        layouts = ask(layout_question(**asked), Advisor.load(), options)
        done = _save(layouts.answer, out)
        put_text(_json(layouts) if as_json else layouts_text(layouts, full=full))
        return done
    found = ask(model_question(**asked), Advisor.load(), options)
    done = _save(found, out)
    put_text(_json(found) if as_json else _text(found, full=full))
    return done


@reporting
def _save(found: ModelAnswer, out: Path | None) -> Exit:
    """Write the file of an answer, or say why there is none."""
    return Exit.DONE if out is None else save(out, found.file, f"what {found.framework.title} should switch on")


@command
def answer_many(models: Sequence[str], asked: Mapping[str, Any], *, scheduler: str | None, as_json: bool) -> Exit:
    """Print a line for each of ``models``, to which ``model_question(**asked)`` is put; ``all`` are those that ship."""
    from ....advisor.questions.many import ask_many  # most ask about one
    from ....compiler.from_model.request import model_names

    names = model_names() if "all" in models else tuple(dict.fromkeys(models))
    questions, refused = dict[str, ModelQuestion](), dict[str, RequestError]()
    for name in names:
        try:
            questions[name] = model_question(name, **asked)
        except RequestError as error:
            refused[name] = error
    with progress_line() as progress, interruptible() as stopped:
        reported = partial(progress, "models")
        found = ask_many(tuple(questions.values()), scheduler=scheduler, progress=reported, should_stop=stopped)
    refused |= {name: found.refused[each] for name, each in questions.items() if each in found.refused}
    answers = {name: found.answers.get(each) for name, each in questions.items() if name not in refused}
    table = AskedModels(answers, refused)
    put_text(json.dumps(table.document(), indent=2) + "\n" if as_json else many_text(table))
    if found.lost is not None:
        say_rejection(found.lost)
    return _ended(found, any_refused=bool(refused))


def _ended(found: "ManyAnswers", *, any_refused: bool) -> Exit:
    if found.interrupted:
        return Exit.INTERRUPTED if found.lost is None else Exit.INPUT
    return Exit.INPUT if any_refused else Exit.DONE


@command
def answer_step(
    model: str, gpu: str, framework: str, sizes: tuple[int, int, int], *, cp: int | None = None, as_json: bool
) -> Exit:
    """Print which layout of a training step to use; ``sizes`` are GPUs, sequences and tokens of each.

    ``cp`` is how many ranks have parts of each sequence; None compares several.
    """
    from ....advisor.questions.question import model_named
    from ....advisor.steps.plans import FRAMEWORKS
    from ....compiler.from_model.frameworks import framework_named, version_doubt
    from ....compiler.from_model.step import StepRequest, step_text
    from .step import advise_step_text

    trains = framework_named(framework)
    if not trains.trains:
        raise RequestError(Code.MGS310, "for", f"{trains.title} does not train", "megatron, torchtitan")
    if trains.title not in FRAMEWORKS:
        message = f"{trains.title} lays out no training step, but the programs that take it do"
        raise RequestError(Code.MGS520, "for", message, "megatron; or ask about --tp 8 without --gpus")
    doubt = version_doubt(framework)
    if doubt:
        say(f"magus: {doubt}")  # beside the answer, which is about a file
    text = step_text(model_named(model), StepRequest(gpu, *sizes, cp=cp))
    return advise_step_text(text, "<model>", framework=trains.title, as_json=as_json)


def _json(found: ModelAnswer | LayoutAnswer) -> str:
    return json.dumps(found.document(), indent=2) + "\n"


def _text(found: ModelAnswer, *, full: bool) -> str:
    rest = [advice_text(advice, DEFAULT_TOP) for advice in found.advice] if full else []
    return "\n".join([ask_text(found), *rest])
