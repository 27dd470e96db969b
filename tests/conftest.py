"""Puts the repository on the path: tests share helpers such as ``tests.helpers``, however pytest is started.

Draws of hypothesis have two profiles: ``quick``, the same draws each time, and ``deep``, which is asked for with
``--hypothesis-profile deep``: ten times as many (see ``tests.helpers.marks.examples``), others each time.

No test fails because the machine is busy: how long an example takes to draw says nothing about Magus.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

WHATEVER_IT_TAKES = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", WHATEVER_IT_TAKES, max_examples=100, derandomize=True)
settings.register_profile("deep", WHATEVER_IT_TAKES, max_examples=1000, print_blob=True)
settings.load_profile("quick")

ROOT = str(Path(__file__).parent.parent)
if ROOT not in sys.path:
    sys.path.append(ROOT)


@pytest.fixture(scope="module")
def compiled_core() -> Iterator[None]:
    """Runs of some thousand line-hops are compiled too: loaded once, that core takes a fraction of the time.

    For tests of what simulated times are used for; that all cores give the same is shown by ``test_exactness.py``.
    """
    from magus.simcore.cores import engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "MIN_LINE_HOPS_COMPILED", engine.MIN_LINE_HOPS)
        yield
