"""Where things are in the checkout."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
DOCS = ROOT / "docs"
GOLDEN = TESTS / "golden"
ERRORS = TESTS / "errors"
