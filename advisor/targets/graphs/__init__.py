"""Files of runtimes about whole layers. In: the sweep of a graph. Out: text. A new target is a file and a line here."""

from ...policy.graph_sweep import GraphSweep
from ..base import Target
from .megatron import MEGATRON
from .tuners import NCCL, NCCLX, RCCL
from .vllm import VLLM

GRAPH_TARGETS: tuple[Target[GraphSweep], ...] = (NCCL, RCCL, NCCLX, MEGATRON, VLLM)

__all__ = ["GRAPH_TARGETS"]
