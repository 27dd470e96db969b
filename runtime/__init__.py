"""Plans carried out with real data on this machine: from a Workload and a Plan to a RunReport.

Every rank has a memory of its own and a thread for each of its queues; ``carry_out`` compares what they leave with the
serial computation. It needs the compiler's data and numpy. Start at ``run.py``.
"""

from .report import Outcome as Outcome
from .report import RunRefused as RunRefused
from .report import RunReport as RunReport
from .report import SeedRun as SeedRun
from .run import carry_out as carry_out

__all__ = ["Outcome", "RunRefused", "RunReport", "SeedRun", "carry_out"]
