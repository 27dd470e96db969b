"""The hash that says whether records and models are still of this code."""

import subprocess
import sys

import pytest

from magus.advisor.estimate.makespan import estimate_ticks
from magus.advisor.training import record as module
from magus.advisor.training.record import CASES, fingerprint
from magus.compiler.ir import OpCase, OpPlan
from magus.compiler.templates import BY_NAME
from tests.helpers.marks import first


def test_cases_are_of_several_templates() -> None:
    assert len({case[3] for case in CASES}) > 5 and {case[3] for case in CASES} <= set(BY_NAME)
    assert len(CASES) == len(set(CASES)) == 20


@pytest.mark.slow
def test_the_fingerprint_is_the_same_in_another_process() -> None:
    code = "from magus.advisor.training.record import fingerprint; print(fingerprint())"

    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    assert other == fingerprint()
    assert len(other) == 64


def test_another_estimate_changes_what_searches_find(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint()

    def slower(scenario: OpCase, schedule: OpPlan) -> float:
        return estimate_ticks(scenario, schedule) * 1.001

    monkeypatch.setattr(module, "estimate_ticks", slower)
    fingerprint.cache_clear()

    after = fingerprint()

    fingerprint.cache_clear()
    assert after != before


@pytest.mark.slow
@pytest.mark.parametrize("name", first(["WITH_OPTIONS", "CASES"], 1))
def test_every_case_counts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before = fingerprint()
    monkeypatch.setattr(module, name, getattr(module, name)[:-1])
    fingerprint.cache_clear()

    after = fingerprint()

    fingerprint.cache_clear()
    assert after != before
