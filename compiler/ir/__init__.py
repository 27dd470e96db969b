"""Resolved data of a file: frozen dataclasses with integers in base units, without source text.

Other rooms and layers import it from here: all public names of these modules, and the shapes of kernels. ``OpCase`` is
a system and a workload, ``OpPlan`` a chunk plan; the other names are their parts.
"""

from .costs import *
from .hardware import *
from .implementation import *
from .op_shape import *
from .operations.attention import AttentionBackShape as AttentionBackShape
from .operations.attention import AttentionShape as AttentionShape
from .operations.gemm import BatchedGemmShape as BatchedGemmShape
from .operations.gemm import GemmShape as GemmShape
from .operations.gemm import GemvShape as GemvShape
from .operations.grouped_gemm import GroupedGemmShape as GroupedGemmShape
from .operations.kernel_shape import COLUMN_STEP as COLUMN_STEP
from .operations.kernel_shape import Adds as Adds
from .operations.kernel_shape import Cutting as Cutting
from .operations.kernel_shape import KernelShape as KernelShape
from .operations.row_wise import ElementwiseShape as ElementwiseShape
from .operations.row_wise import RowWiseShape as RowWiseShape
from .operations.row_wise import TimedShape as TimedShape
from .options import *
from .plan import *
from .plan_view import *
from .scenario import *
from .schedule import *
from .stopping import *
from .tensors import *
from .topologies import *
from .variability import *
from .workload import *
