"""Kept advice: equal to the advice that was computed, and found again only by the same question."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from magus.advisor import AdviceOptions, Advisor, AnswerSource
from magus.advisor.answer.export import advice_document
from magus.advisor.candidates.advice import Advice
from magus.advisor.questions import advisor as recommend
from magus.advisor.questions import computing
from magus.compiler import compile_text
from magus.compiler.ir import EngineChoice, EngineKind, Explore, OpCase, Scenario
from magus.simcore.memo.memo import Store, memoizing
from magus.tui.text.render import advice_text
from tests.helpers.marks import first
from tests.helpers.scenarios.scenarios import ag_gemm, exploring, gemm_rs, lone_gather

OPTIONS = AdviceOptions(top=2, bespoke=20, sensitivity=True)
SCENARIO = exploring(
    ag_gemm(512, 2048, 2048, ranks=4), Explore.of(chunks=(8,), engine=(EngineChoice(EngineKind.DMA, 3),))
)
PLAN = """
use "amd/mi300x"
system pair { gpus 2 x MI300X; fabric full_mesh(xgmi) }
workload up on pair {
  x = tensor bf16[256, 256] shard rows
  w = tensor bf16[256, 512] shard cols
  y = gemm(all_gather(x), w)
}
schedule mine for up { split rows 64, 64; move by dma(1); group own alone, by piece }
"""


class Computed(Exception):
    """Raised where nothing may be computed."""


@pytest.fixture(scope="module")
def advisor() -> Advisor:
    return Advisor.load()


@pytest.fixture(scope="module")
def computed(advisor: Advisor, tmp_path_factory: pytest.TempPathFactory) -> Callable[[OpCase], tuple[Advice, Path]]:
    """The advice for a scenario, and a folder where it and nothing else is kept; computed once."""

    @cache
    def of(scenario: OpCase) -> tuple[Advice, Path]:
        folder = tmp_path_factory.mktemp("kept")
        with memoizing(Store(folder)):
            return advisor.recommend(Scenario.of_one(scenario), OPTIONS), folder

    return of


@pytest.fixture
def advise(store: Store, computed: Callable[[OpCase], tuple[Advice, Path]]) -> Callable[[OpCase], Advice]:
    """The advice for a scenario, which ``store`` keeps from then on."""

    def of(scenario: OpCase) -> Advice:
        advice, folder = computed(scenario)
        copytree(folder, store.folder, dirs_exist_ok=True)
        return advice

    return of


def kept(advisor: Advisor, scenario: OpCase, options: AdviceOptions = OPTIONS) -> Advice | None:
    """The advice that is given without being computed."""

    def computing_nothing(*_: object) -> Any:
        raise Computed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recommend, "computed_advice", computing_nothing)
        try:
            return advisor.recommend(Scenario.of_one(scenario), options)
        except Computed:
            return None


@pytest.mark.parametrize(
    "scenario",
    first(
        [
            SCENARIO,
            compile_text(PLAN).scenario().case,
            gemm_rs(512, 1024, 2048, ranks=2),
            lone_gather(1024, 1024, ranks=4),
        ],
        1,
    ),
    ids=lambda scenario: scenario.name,
)
def test_what_is_kept_is_what_was_computed(
    scenario: OpCase, advisor: Advisor, advise: Callable[[OpCase], Advice]
) -> None:
    computed = advise(scenario)
    again = kept(advisor, scenario)

    assert again is not None
    for field in (each for each in fields(Advice) if each.compare):
        assert repr(getattr(again, field.name)) == repr(getattr(computed, field.name)), field.name
    assert again == computed and again.source is AnswerSource.CACHE
    assert advice_document(again) == advice_document(computed)
    assert advice_text(again, OPTIONS.top) == advice_text(computed, OPTIONS.top)


@pytest.mark.slow
def test_a_threshold_that_is_kept_is_what_was_computed(advisor: Advisor, store: Store) -> None:
    options = replace(OPTIONS, threshold=True)
    computed = advisor.recommend(Scenario.of_one(SCENARIO), options)

    assert computed.threshold is not None and kept(advisor, SCENARIO, options) == computed


@pytest.mark.slow
def test_a_file_that_says_the_same_has_the_same_answer(advisor: Advisor, store: Store) -> None:
    advisor.recommend(compile_text(PLAN).scenario(), OPTIONS)

    assert kept(advisor, compile_text(f"# a comment\n{PLAN}").scenario().case) is not None


def test_another_question_is_not_answered(advisor: Advisor, advise: Callable[[OpCase], Advice]) -> None:
    advise(SCENARIO)

    assert kept(advisor, SCENARIO) is not None
    for options in (
        replace(OPTIONS, top=3),
        replace(OPTIONS, bespoke=0),
        replace(OPTIONS, verify=False),
        replace(OPTIONS, sensitivity=False),
    ):
        assert kept(advisor, SCENARIO, options) is None
    assert kept(advisor, SCENARIO, replace(OPTIONS, workers=2)) is not None, "as many workers find the same"
    for scenario in (replace(SCENARIO, name="other"), exploring(SCENARIO, Explore.of(chunks=(16,)))):
        assert kept(advisor, scenario) is None
    assert kept(Advisor(None), SCENARIO) is None


@pytest.mark.slow
def test_advice_that_was_cut_short_or_failed_in_part_is_not_kept(
    advisor: Advisor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with memoizing(None):
        advice = advisor.recommend(Scenario.of_one(SCENARIO), OPTIONS)
    for partial_advice in (replace(advice, interrupted=True), replace(advice, notes=("a stage failed",))):
        with monkeypatch.context() as patch:
            patch.setattr(computing, "advice_of", lambda *_, given=partial_advice: given)
            assert advisor.recommend(Scenario.of_one(SCENARIO), OPTIONS) is partial_advice
        assert kept(advisor, SCENARIO) is None


def test_what_lies_there_malformed_is_computed_again(
    advisor: Advisor, store: Store, advise: Callable[[OpCase], Advice]
) -> None:
    advice = advise(SCENARIO)
    ((key, data),) = (
        (path.name, found)
        for path in store.folder.rglob("*")
        if path.is_file() and (found := store.read(path.name) or b"").startswith(b'[["Choice"')
    )
    choices, _, rest = data.partition(b"\n")
    illegal = choices.replace(b'["EngineKind","DMA"],3', b'["EngineKind","DMA"],300')
    assert illegal != choices
    for changed in (
        b"",
        b"\n",
        choices,
        rest,
        b"[]\n" + rest,
        choices + b"\n",
        b"[1]\n" + rest,
        illegal + b"\n" + rest,
    ):
        store.write(key, changed)
        assert kept(advisor, SCENARIO) is None
    assert advisor.recommend(Scenario.of_one(SCENARIO), OPTIONS).recommended == advice.recommended


@pytest.mark.slow
@pytest.mark.parametrize("threads", first([True, False], 1))
def test_workers_keep_what_they_simulate(threads: bool, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    advisor, options = Advisor(), replace(OPTIONS, workers=2, bespoke=0)
    monkeypatch.setattr(computing, "suits_threads", lambda _: threads)
    computed = advisor.recommend(Scenario.of_one(SCENARIO), options)

    # Another question with the same simulations, none of which is run.
    monkeypatch.setattr(import_module("magus.simcore.simulate"), "_simulate", partial(pytest.fail, "simulated"))
    again = advisor.recommend(Scenario.of_one(SCENARIO), replace(options, workers=1))

    assert again.notes == ()
    assert again.candidates == computed.candidates
