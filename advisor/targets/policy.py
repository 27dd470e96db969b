"""The table itself, for ``policy/reader.py``."""

from ..policy.table import policy_text
from ..policy.workload_sweep import WorkloadSweep
from .base import Content, Options, Target, refused


def _write(content: Content, options: Options) -> str:
    if isinstance(content, WorkloadSweep):
        raise refused("a table is about one parameter that varies", "--set M=1024..8192")
    return policy_text(content.document())


POLICY = Target("policy", "rules as JSON, read by magus.advisor.policy.reader", _write)
