"""Execution options as words of the language and back."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from ..ir import ExecutionOptions
from .knobs import KNOBS, Knob
from .knobs.execution import KERNEL, USUAL_WAIT, WAIT

OPTIONS: Mapping[str, Knob] = {knob.word: knob for knob in KNOBS if knob.option}


def options_from(given: Mapping[str, str]) -> ExecutionOptions:
    """Execution options from words; what is not said is usual, and a persistent kernel usually polls."""
    return options_of({OPTIONS[word]: OPTIONS[word].value_of(text) for word, text in given.items()})


def options_of(given: Mapping[Knob, Any]) -> ExecutionOptions:
    """The same from values."""
    wait = USUAL_WAIT[given.get(KERNEL, KERNEL.usual)]
    return ExecutionOptions(**{knob.field: value for knob, value in {WAIT: wait, **given}.items()})


def values_of(options: ExecutionOptions) -> dict[str, Enum]:
    """The value of each option, by the word of the option."""
    return {word: getattr(options, knob.field) for word, knob in OPTIONS.items()}


def non_default_options(options: ExecutionOptions) -> tuple[tuple[str, str], ...]:
    """(word, value) of everything that is not usual, in the order of the canonical text."""
    usual = {word: knob.usual for word, knob in OPTIONS.items()} | {WAIT.word: USUAL_WAIT[options.kernel]}
    return tuple((word, str(value.value)) for word, value in values_of(options).items() if value is not usual[word])
