"""In: rules of one op, a sweep of several, or scenarios. Out: the text of a file of a runtime.

A new target is a file, or a dialect in one, and a line here.
"""

from collections.abc import Sequence

from ...compiler.ir import OpCase
from ..policy.table import PolicyTable
from .base import POLICY, Refused, Target
from .infragraph import INFRAGRAPH
from .megatron import MEGATRON, TRANSFORMER_ENGINE
from .nccl import NCCL, NCCL_CONFIG, NCCLX, RCCL
from .pgle import PGE, PGLE
from .settings import DEEPSPEED, INDUCTOR, SGLANG, TORCHTITAN, VLLM, XLA

TARGETS: tuple[Target[PolicyTable], ...] = (
    *(POLICY, NCCL, NCCL_CONFIG, RCCL, NCCLX),
    *(MEGATRON, TRANSFORMER_ENGINE, VLLM, SGLANG, TORCHTITAN, DEEPSPEED),
    *(XLA, INDUCTOR),
)
"""Files of rules."""

SCENARIO_TARGETS: tuple[Target[Sequence[OpCase]], ...] = (PGE, PGLE, INFRAGRAPH)
"""Files of times and of the machine, for which nothing is advised."""

__all__ = ["SCENARIO_TARGETS", "TARGETS", "Refused", "Target"]
