"""Puts the repository on the path: tests share helpers such as ``tests.helpers``, however pytest is started.

Draws of hypothesis have two profiles: ``quick``, the same draws each time, and ``deep``, which is asked for with
``--hypothesis-profile deep``: ``tests.helpers.marks`` says how many times as many, and others each time.

No test fails because the machine is busy: how long an example takes to draw says nothing about Magus.
"""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from magus.advisor.learned.model_file import Card
    from magus.advisor.learned.proposal_model import ProposalModel
    from magus.simcore.memo.memo import Store

WHATEVER_IT_TAKES = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", WHATEVER_IT_TAKES, max_examples=30, derandomize=True)
settings.register_profile("deep", WHATEVER_IT_TAKES, max_examples=1000, print_blob=True)
settings.load_profile("quick")

# Every test computes what it looks at; those of results on disk keep them in folders of their own.
os.environ["MAGUS_NO_CACHE"] = "1"
# No folder: what screens remember is not kept.
os.environ["MAGUS_STATE_DIR"] = os.devnull

# As Python has it, the collector of garbage looks at every 700 new objects: a tenth of all the time.
gc.set_threshold(100_000)

ROOT = str(Path(__file__).parent.parent)
if ROOT not in sys.path:
    sys.path.append(ROOT)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test with ``quick(n)`` only n cases, from the first to the last, are no slow tests."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("quick") is not None and item.get_closest_marker("slow") is None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for found in cases.values():
        mark = found[0].get_closest_marker("quick")
        count, last = min(mark.args[0] if mark else 1, len(found)), len(found) - 1
        kept = {place * last // max(1, count - 1) for place in range(count)}
        for place, item in enumerate(found):
            if place not in kept:
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """What all tests share stays: the collector of garbage need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def compiled_core() -> Iterator[None]:
    """All runs are compiled: loaded once, that core takes a fraction of the time.

    For tests of what simulated times are used for; that all cores give the same is shown by ``test_exactness.py``.
    """
    from magus.simcore.cores import engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "MIN_LINE_HOPS_COMPILED", 0)
        yield


@pytest.fixture(scope="session")
def results_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all processes of a run keep results; each run begins with none."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "results"


@pytest.fixture(scope="module")
def kept_results(results_folder: Path) -> Iterator[None]:
    """What commands of this module compute is kept, and found again by those of other modules that take this.

    For tests of how results are shown: ``test_memo.py`` shows that what is kept is what was computed. What a test
    computes otherwise than Magus does must not be kept.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAGUS_CACHE_DIR", str(results_folder))
        patch.delenv("MAGUS_NO_CACHE", raising=False)
        yield


@pytest.fixture(scope="module")
def kept_answers(kept_results: None) -> Iterator[None]:
    """So is what is computed without a command."""
    from magus.simcore.memo.memo import memoizing, user_store

    with memoizing(user_store()):
        yield


@pytest.fixture
def store(tmp_path: Path) -> "Iterator[Store]":
    """A store in a folder of the test, in which all that is computed is kept."""
    from magus.simcore.memo.memo import Store, memoizing

    found = Store(tmp_path)
    with memoizing(found):
        yield found


@pytest.fixture(scope="session")
def loaded_once() -> Callable[[], "tuple[ProposalModel, Card]"]:
    """The shipped model, read from its file when it is first asked for."""
    from magus.advisor.learned.model_file import load

    return cache(load)


@pytest.fixture(scope="module")
def one_model(loaded_once: Callable[[], "tuple[ProposalModel, Card]"]) -> Iterator[None]:
    """All tests of a process that ask for the shipped model get the same."""
    from magus.advisor.learned.model_file import load
    from magus.advisor.questions import advisor as recommend

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recommend, "load_proposals", lambda folder=None: load(folder) if folder else loaded_once())
        yield
