"""Puts the tests folder on the path, so that tests share helpers such as ``scenarios``."""

import sys
from pathlib import Path

TESTS = str(Path(__file__).parent)
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)
