"""Resolved data of a file: frozen dataclasses with integers in base units, without source text.

Other rooms and layers import from here: all public names of these modules, and the shapes of kernels. Begin with these:

- ``Scenario``: a question, which is a ``Workload`` on a ``System`` with schedules and what to explore (``Explore``).
- ``Workload``: the ops of a question. An ``Op`` is a kernel, a collective, or one of each; ``OpShape`` has its sizes.
- ``OpCase``: one op on its system, for code that looks at a single op.
- ``Schedule``: what each op does, and in which order. Of a single op it is an ``OpChoice``: a template and its knobs.
- ``Plan``: a schedule worked out into parts. ``OpPlan`` has the steps of one part: transfers, kernels and sums.

Times are ticks of 10 fs, sizes bytes, rates bytes or operations per second.
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
from .region import *
from .scenario import *
from .schedule import *
from .stopping import *
from .tensors import *
from .topologies import *
from .variability import *
from .workload import *
