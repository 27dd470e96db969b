"""``magus ask``: what to switch on for a model, with a framework."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....advisor import Advisor, RequestError
from ....advisor.answer.stages import DEFAULT_TOP
from ....advisor.questions.ask import QUICK, LayoutAnswer, ModelAnswer, ask
from ....advisor.questions.layouts import layout_question
from ....advisor.questions.question import model_question
from ....compiler.codes import Code
from ...exit_codes import Exit
from ...text.ask import ask_text, layouts_text
from ...text.door import put_text
from ...text.render import advice_text
from ..console import say_request_error
from ..running import run_command


def answer(asked: Mapping[str, Any], *, workers: int, full: bool, as_json: bool) -> Exit:
    """Print the answer to ``model_question(**asked)``; ``full``: with all that ``magus advise`` says of the layer.

    With ``gpus`` it is that to ``layout_question(**asked)``.
    """

    def action() -> Exit:
        try:
            options = replace(QUICK, workers=workers)
            if "gpus" in asked:
                layouts = ask(layout_question(**asked), Advisor.load(), options)
                put_text(_json(layouts) if as_json else layouts_text(layouts, full=full))
                return Exit.DONE
            found = ask(model_question(**asked), Advisor.load(), options)
        except RequestError as error:
            say_request_error(error)
            return Exit.INPUT
        put_text(_json(found) if as_json else _text(found, full=full))
        return Exit.DONE

    return run_command(action)


def answer_step(model: str, gpu: str, framework: str, sizes: tuple[int, int, int], *, as_json: bool) -> Exit:
    """Print which layout of a training step to use; ``sizes`` are GPUs, sequences and tokens of each."""
    from ....advisor.questions.question import model_named
    from ....compiler.from_model.frameworks import framework_named
    from ....compiler.from_model.step import StepRequest, step_text
    from .step import advise_step_text

    def action() -> Exit:
        try:
            trains = framework_named(framework)
            if not trains.trains:
                raise RequestError(Code.MGS310, "for", f"{trains.title} does not train", "megatron, torchtitan")
            text = step_text(model_named(model), StepRequest(gpu, *sizes))
        except RequestError as error:
            say_request_error(error)
            return Exit.INPUT
        return advise_step_text(text, "<model>", framework=trains.title, as_json=as_json)

    return run_command(action)


def _json(found: ModelAnswer | LayoutAnswer) -> str:
    return json.dumps(found.document(), indent=2) + "\n"


def _text(found: ModelAnswer, *, full: bool) -> str:
    rest = [advice_text(advice, DEFAULT_TOP) for advice in found.advice] if full else []
    return "\n".join([ask_text(found), *rest])
