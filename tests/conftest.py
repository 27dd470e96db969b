"""Puts the repository on the path: tests share helpers such as ``tests.scenarios``, however pytest is started."""

import sys
from pathlib import Path

ROOT = str(Path(__file__).parent.parent)
if ROOT not in sys.path:
    sys.path.append(ROOT)
