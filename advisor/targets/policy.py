"""The table itself, for ``policy/reader.py``."""

from ..policy.table import PolicyTable, policy_text
from .base import Options, Target


def _write(table: PolicyTable, options: Options) -> str:
    return policy_text(table.document())


POLICY = Target("policy", "rules as JSON, read by magus.advisor.policy.reader", _write)
