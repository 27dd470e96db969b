"""The table itself, for ``policy/reader.py``."""

from ...compiler.codes import Code
from ...compiler.ir import Rejection
from ..policy.table import PolicyTable, policy_text
from .base import Options, Refused, Target


def _write(table: PolicyTable, options: Options) -> str:
    if not table.rules:
        message = "a table is about one parameter that varies, at points that can all be carried out"
        raise Refused(Rejection(Code.MGS520, message, "--set M=1024..8192"))
    return policy_text(table.document())


POLICY = Target("policy", "rules as JSON, read by magus.advisor.policy.reader", _write)
