"""The machine as an implementation uses it: rates, costs and tiles changed where the GPU and its links have them.

No result is multiplied by anything: what overlaps and what does not is an outcome of the simulation.
"""

import math
from dataclasses import replace
from fractions import Fraction

from ...compiler.ir import Fabric, GemmModel, Method, Scenario


def machine_of(scenario: Scenario, method: Method) -> Scenario:
    """Return ``scenario`` with the rate of the path of ``method``, its tiles, and its cost of each step."""
    system = scenario.system
    gpu = replace(
        system.gpu,
        gemm=_gemm(scenario, method),
        launch=replace(system.gpu.launch, host_ticks=method.step_ticks),
    )
    return replace(scenario, system=replace(system, gpu=gpu, fabric=_fabric(system.fabric, method)))


def _fabric(fabric: Fabric, method: Method) -> Fabric:
    """The fabric with the links as fast as the path reaches."""
    rate = math.floor(method.rate * fabric.link.achieved_bytes_per_s)
    if method.limit_bytes_per_s is not None:
        rate = min(rate, method.limit_bytes_per_s)
    return replace(fabric, link=replace(fabric.link, achieved_bytes_per_s=rate))


def _gemm(scenario: Scenario, method: Method) -> GemmModel:
    """The GEMM form with the tiles of the implementation, and memory that much slower as it reads more than once."""
    model = scenario.gpu.gemm
    if not method.tiles:
        return model
    own = replace(model, tiles=method.tiles, pair_tiles=(), splits_k=False)
    return replace(own, hbm_fraction=model.hbm_fraction / _reads(scenario, method))


def _reads(scenario: Scenario, method: Method) -> Fraction:
    """Bytes that the kernel reads and writes, over those of a kernel that reads each operand once."""
    gemm = scenario.workload.gemm
    if gemm is None or gemm.m >= method.rereads_below:
        return Fraction(1)
    tile_rows = math.ceil(gemm.m / method.tiles[0][0])
    again = max(Fraction(0), tile_rows / method.rows_per_read - 1) * gemm.k * gemm.n
    return 1 + again / (gemm.m * gemm.k + gemm.k * gemm.n + gemm.m * gemm.n)
