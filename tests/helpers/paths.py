"""Where things are in the checkout."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
DOCS = ROOT / "docs"
TABLE = ROOT / "benchmarks" / "data" / "proposals.npz"
GOLDEN = TESTS / "golden"
ERRORS = TESTS / "errors"
