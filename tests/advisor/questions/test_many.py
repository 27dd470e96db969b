"""One question about many models: what is kept, what cannot be asked, and what is said when nobody answers on."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from magus.advisor import Advisor, ModelQuestion, model_question
from magus.advisor.questions import many
from magus.advisor.questions.many import ask_many
from magus.advisor.work.on_dask import BackendError
from magus.advisor.work.processes import ProcessDied
from magus.compiler.codes import Code
from magus.compiler.from_model.frameworks import version_doubt
from magus.compiler.ir import Cancelled
from magus.simcore.memo.memo import Store, memoizing
from magus.tui.text.door import Exit
from tests.helpers.commands import magus

NAMES = ("llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b")
QUESTIONS = [model_question(name, "h100", "vllm", tp=4, prefill=512) for name in NAMES]
WORDS = ("ask", "--gpu", "h100", "--for", "vllm", "--tp", "4", "--prefill", "512")


@dataclass(frozen=True)
class Said:
    """In place of an answer, which takes seconds."""

    question: ModelQuestion
    interrupted: bool = False
    advice: tuple[Any, ...] = ()

    def document(self) -> dict[str, Any]:
        """As of ``ModelAnswer``, as far as it is printed."""
        first = {"switch": "all of it", "gain": 1.25, "from_tokens": 512}
        last = self.question == QUESTIONS[-1]
        known = {"model": self.question.model.name, "today_us": 2500.0, "switch_on": None if last else first}
        return {**known, "version_doubt": version_doubt(self.question.framework) or None}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that are really asked about."""
    names = list[str]()

    def ask(question: ModelQuestion, *rest: Any) -> Said:
        names.append(question.model.name)
        return Said(question)

    monkeypatch.setattr(many, "ask", ask)
    return names


def test_a_question_is_answered_once(asked: list[str], tmp_path: Path) -> None:
    with memoizing(Store(tmp_path)):
        first, again = ask_many([*QUESTIONS[:2], QUESTIONS[0]]), ask_many(QUESTIONS)

    assert asked == list(NAMES) and not again.interrupted
    assert {each: again.answers[each] for each in QUESTIONS[:2]} == first.answers
    assert [again.answers[each]["model"] for each in QUESTIONS] == list(NAMES)


def test_without_a_folder_nothing_is_kept(asked: list[str]) -> None:
    ask_many(QUESTIONS[:1])
    ask_many(QUESTIONS[:1])
    assert asked == [NAMES[0], NAMES[0]]


def test_what_was_stopped_has_what_was_answered(asked: list[str]) -> None:
    found = ask_many(QUESTIONS, should_stop=lambda: len(asked) >= 2)
    assert [each.model.name for each in found.answers] == list(NAMES[:2]) and found.interrupted and found.lost is None


class Workers:
    """In place of a cluster whose workers answer, die of a question, or are lost at the last."""

    count = 1

    def __init__(self, address: str, answer_of: Any) -> None:
        self._answer_of = answer_of

    def ask(self, question: ModelQuestion, should_stop: Any) -> Any:
        """As of ``Cluster``."""
        if question == QUESTIONS[1]:
            raise ProcessDied
        if question == QUESTIONS[2]:
            raise BackendError("the scheduler at tcp://head:8786 was lost", "go on")
        return self._answer_of(question)

    def close(self) -> None:
        """Nothing is open."""


def test_what_workers_answered_is_kept_when_they_are_lost(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many, "Cluster", Workers)
    monkeypatch.setattr(many, "check_worker", lambda digests, keeps: None)
    with memoizing(Store(tmp_path)):
        found = ask_many(QUESTIONS, scheduler="tcp://head:8786")
        assert found.interrupted and found.lost is not None and "was lost" in found.lost.message
        assert list(found.answers) == QUESTIONS[:2] and asked == list(NAMES[:2])
        assert not ask_many(QUESTIONS[:2]).interrupted and len(asked) == 2, "asked again"


def test_a_line_for_each_model_and_what_cannot_be_asked(asked: list[str]) -> None:
    models = [word for name in (*NAMES, "llama-9", NAMES[0]) for word in ("--model", name)]
    done = magus(*WORDS, *models)
    document = json.loads(magus(*WORDS, *models, "--json").stdout)

    assert done.exit_code == Exit.INPUT
    assert done.stdout.splitlines()[:4] == [
        "model          today  gain   switch on",
        "llama-3.2-1b 2.50 ms 1.25x   all of it, from 512 tokens on",
        "llama-3.2-3b 2.50 ms 1.25x   all of it, from 512 tokens on",
        "llama-3.1-8b 2.50 ms         nothing",
    ]
    assert "! llama-9: 'llama-9' is no model that ships" in done.stdout
    assert [each["model"] for each in document["answers"]] == list(NAMES) and document["unanswered"] == []
    assert [each["model"] for each in document["refused"]] == ["llama-9"] and document["schema"] == "magus-ask-many/1"


def test_the_version_of_a_framework_is_doubted_once(asked: list[str]) -> None:
    words = [f"{word}@0.12" if word == "vllm" else word for word in WORDS]
    done = magus(*words, "--model", NAMES[0], "--model", NAMES[1])

    assert done.exit_code == Exit.DONE and done.stdout.count("options and defaults of vLLM 0.12 may differ") == 1


def test_a_question_that_a_framework_cannot_be_asked_is_refused_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Advisor, "recommend_many", lambda *given, **more: pytest.fail("it was asked"))
    divided = [model_question("llama-3.1-8b", "h100", "vllm", tp=3, prefill=512)]
    found = ask_many(divided)
    assert list(found.refused) == divided and not found.answers and not found.interrupted


def test_a_model_that_does_not_fit_is_refused_alone() -> None:
    large = model_question("llama-3.1-405b", "h100", "vllm", decode=64)
    error = ask_many([large]).refused[large]
    assert (error.code, error.field) == (Code.MGS402, "model")
    assert error.message == "the tensors of 126 layers take 109.27 GiB of a rank, but H100 has 80 GiB"
    assert "share a layer among more GPUs (tp)" in error.hint


def test_a_stop_before_the_first_answer(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def cancelled(*given: Any) -> Said:
        raise Cancelled

    monkeypatch.setattr(many, "ask", cancelled)
    assert ask_many(QUESTIONS) == many.ManyAnswers(interrupted=True)


@pytest.mark.parametrize("words", [("--full",), ("--gpus", "8")])
def test_several_models_are_asked_one_thing(words: tuple[str, ...]) -> None:
    done = magus("ask", "--gpu", "h100", "--for", "vllm", "--model", "all", *words)
    assert done.exit_code == Exit.USAGE and "about one model" in done.stderr
