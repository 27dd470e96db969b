"""Advice. In: a scenario or a request. Out: an ``Advice``, the schedule to use with its reasons and its proof."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..compiler.from_model.request import LayerRequest, model_of, shipped_model
    from ..compiler.request.request import Request, RequestError
    from .answer.stages import AdviceOptions
    from .bounds.lower_bound import lower_bound
    from .candidates.advice import Advice, AnswerSource
    from .layers.recommend import recommend_workload
    from .learned.boosted_trees import ModelError
    from .oracle.oracle import Oracle
    from .questions.advisor import Advisor
    from .questions.ask import ask
    from .questions.kept import keep_results
    from .questions.layouts import LayoutQuestion, layout_question
    from .questions.question import ModelQuestion, model_question
    from .solver import NoFeasibleSchedule, enumerate_space
    from .steps.answer import StepAdvice, advise_step
    from .work.on_dask import BackendError

__all__ = [
    "Advice",
    "AdviceOptions",
    "Advisor",
    "LayerRequest",
    "ModelError",
    "NoFeasibleSchedule",
    "Oracle",
    "StepAdvice",
    "Request",
    "RequestError",
    "AnswerSource",
    "BackendError",
    "advise_step",
    "enumerate_space",
    "keep_results",
    "lower_bound",
    "model_of",
    "ModelQuestion",
    "LayoutQuestion",
    "ask",
    "layout_question",
    "model_question",
    "recommend_workload",
    "shipped_model",
]

_HOMES = {
    "Advice": ".candidates.advice",
    "AdviceOptions": ".answer.stages",
    "Advisor": ".questions.advisor",
    "LayerRequest": "..compiler.from_model.request",
    "ModelError": ".learned.boosted_trees",
    "NoFeasibleSchedule": ".solver",
    "Oracle": ".oracle.oracle",
    "Request": "..compiler.request.request",
    "RequestError": "..compiler.request.request",
    "AnswerSource": ".candidates.advice",
    "BackendError": ".work.on_dask",
    "StepAdvice": ".steps.answer",
    "advise_step": ".steps.answer",
    "enumerate_space": ".solver",
    "keep_results": ".questions.kept",
    "lower_bound": ".bounds.lower_bound",
    "model_of": "..compiler.from_model.request",
    "ModelQuestion": ".questions.question",
    "ask": ".questions.ask",
    "LayoutQuestion": ".questions.layouts",
    "layout_question": ".questions.layouts",
    "model_question": ".questions.question",
    "recommend_workload": ".layers.recommend",
    "shipped_model": "..compiler.from_model.request",
}


def __getattr__(name: str) -> Any:
    """Import on first use: the solver and the learner take longer to load than most commands to run."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)
