"""Puts the repository on the path: tests share helpers such as ``tests.helpers``, however pytest is started.

No test fails because the machine is busy: how long an example takes to draw says nothing about Magus.
"""

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

settings.register_profile("magus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("magus")

ROOT = str(Path(__file__).parent.parent)
if ROOT not in sys.path:
    sys.path.append(ROOT)
