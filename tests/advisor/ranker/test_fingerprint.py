import subprocess
import sys
from dataclasses import replace

import pytest

from magus.advisor.estimate.makespan import Estimate
from magus.advisor.ranker import fingerprint as module
from magus.advisor.ranker.features import NAMES
from magus.advisor.ranker.fingerprint import CASES, engine_fingerprint, fingerprint
from magus.advisor.ranker.trees import Ranker
from magus.compiler.ir import Scenario, Schedule
from magus.compiler.templates import BY_NAME


def test_the_shipped_model_is_of_this_code() -> None:
    card = Ranker.load().card

    assert card is not None
    assert card.fingerprint == fingerprint(), (
        "features or simulator changed since the model was trained: run `magus train`"
    )


def test_cases_are_of_several_templates() -> None:
    assert len({case[3] for case in CASES}) > 5 and {case[3] for case in CASES} <= set(BY_NAME)
    assert len(CASES) == len(set(CASES)) == 20


def test_the_fingerprint_is_the_same_in_another_process() -> None:
    code = "from magus.advisor.ranker.fingerprint import fingerprint; print(fingerprint())"

    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    assert other == fingerprint()
    assert len(other) == 64


def test_a_new_feature_changes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before, engine = fingerprint(), engine_fingerprint()
    monkeypatch.setattr(module, "NAMES", (*NAMES, "another"))
    fingerprint.cache_clear()
    engine_fingerprint.cache_clear()

    after, same = fingerprint(), engine_fingerprint()

    fingerprint.cache_clear()
    assert after != before
    assert same == engine, "what searches found is still true"


def test_another_estimate_changes_what_searches_find(monkeypatch: pytest.MonkeyPatch) -> None:
    before = engine_fingerprint()
    estimate = module.estimate_ticks

    def slower(scenario: Scenario, schedule: Schedule) -> Estimate:
        found = estimate(scenario, schedule)
        return replace(found, makespan_ticks=found.makespan_ticks * 1.001)

    monkeypatch.setattr(module, "estimate_ticks", slower)
    engine_fingerprint.cache_clear()

    after = engine_fingerprint()

    engine_fingerprint.cache_clear()
    assert after != before


@pytest.mark.parametrize("name", ["WITH_OPTIONS", "CASES"])
def test_every_case_counts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before = engine_fingerprint()
    monkeypatch.setattr(module, name, getattr(module, name)[:-1])
    engine_fingerprint.cache_clear()

    after = engine_fingerprint()

    engine_fingerprint.cache_clear()
    assert after != before
