"""Puts the repository on the path: tests share helpers such as ``tests.helpers``, however pytest is started.

Draws of hypothesis have two profiles: ``quick``, the same draws each time, and ``deep``, which is asked for with
``--hypothesis-profile deep``: ten times as many (see ``tests.helpers.marks.examples``), others each time.

No test fails because the machine is busy: how long an example takes to draw says nothing about Magus.
"""

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

WHATEVER_IT_TAKES = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", WHATEVER_IT_TAKES, max_examples=100, derandomize=True)
settings.register_profile("deep", WHATEVER_IT_TAKES, max_examples=1000, print_blob=True)
settings.load_profile("quick")

ROOT = str(Path(__file__).parent.parent)
if ROOT not in sys.path:
    sys.path.append(ROOT)
