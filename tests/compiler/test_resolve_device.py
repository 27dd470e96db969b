from fractions import Fraction

from magus.compiler import compile_text
from magus.compiler.scenario import TICKS_PER_US, DType, Gpu, Origin, System


def system(text: str, name: str = "s") -> System:
    body = "a = tensor bf16[8, 8]; y = gemm(a, a)"
    return compile_text(f"{text}\nworkload g on {name} {{ {body} }}").scenario("g").system


def gpu(text: str) -> Gpu:
    return system(f'use "amd/mi300x"\n{text}\nsystem s {{ gpus 8 x G; fabric full_mesh(xgmi) }}').gpu


def test_mi300x() -> None:
    found = system('use "amd/mi300x"\nsystem s { gpus 8 x MI300X; fabric full_mesh(xgmi) }')
    gpu = found.gpu
    assert (gpu.sms, gpu.clock_hz, gpu.line_bytes) == (304, 2_100_000_000, 128)
    assert gpu.peak(DType.BF16) == 1307 * 10**12 and gpu.peak(DType.FP32) == 0
    assert (gpu.l2.instances, gpu.l2.size_bytes, gpu.l2.latency_ticks) == (8, 4 << 20, 13_690_476)
    assert gpu.hbm.achieved_bytes_per_s == 4_200_000_000_000
    assert gpu.gemm.start_ticks == 74_000_000 and gpu.gemm.exponent == Fraction(124, 100)
    assert len(gpu.gemm.tiles) == 11 and not gpu.gemm.validated
    assert (gpu.dma.engines, gpu.dma.setup_ticks) == (14, 4 * TICKS_PER_US)
    assert found.fabric.link.achieved_bytes_per_s == 46_500_000_000


def test_h100() -> None:
    found = system('use "nvidia/h100"\nsystem s { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }')
    assert found.gpu.gemm.validated and found.gpu.gemm.error == Fraction(53, 1000)
    assert found.fabric.switch is not None and found.fabric.switch.ports == 8
    assert found.gpu.l2.instances == 1


def test_every_number_of_a_library_has_an_origin() -> None:
    found = system('use "nvidia/h100"\nsystem s { gpus 8 x H100; fabric switch(nvswitch, link=nvlink) }')
    assert found.fabric.switch is not None
    for device in (found.gpu, found.fabric.link, found.fabric.switch):
        assert all(each.source or each.origin is Origin.ASSUMED for each in device.provenance)
    origins = {each.path: each for each in found.gpu.provenance}
    assert origins["H100.hbm.achieved"].origin is Origin.MEASURED
    assert origins["H100.gemm.mma"].origin is Origin.FITTED
    assert origins["H100.hbm.capacity"].origin is Origin.NOMINAL
    assert origins["H100.peak.bf16"].source == "NVIDIA H100 SXM data sheet"


def test_extends_takes_everything_else_from_the_parent() -> None:
    parent = system('use "amd/mi300x"\nsystem s { gpus 8 x MI300X; fabric full_mesh(xgmi) }').gpu
    hbm = "capacity 256 GiB; bandwidth 6 TB/s; achieved base.hbm.achieved * 6 / 5.3 @derived"
    child = gpu(f"gpu G extends MI300X {{ hbm {{ {hbm} }} }}")
    assert child.hbm.capacity_bytes == 256 << 30
    assert child.hbm.achieved_bytes_per_s == 4_754_716_981_132
    assert (child.gemm, child.l2, child.dma) == (parent.gemm, parent.l2, parent.dma)
    assert {each.path.partition(".")[0] for each in child.provenance} == {"G"}
    origins = {each.path: each.origin for each in child.provenance}
    assert origins["G.hbm.achieved"] is Origin.DERIVED and origins["G.hbm.bandwidth"] is Origin.ASSUMED


def test_cycles_are_of_the_clock_of_their_own_block() -> None:
    assert gpu("gpu G extends MI300X { clock 1 GHz; hbm { latency 100 cycles } }").hbm.latency_ticks == 10_000_000
    assert gpu("gpu G extends MI300X { hbm { latency 210 cycles } }").hbm.latency_ticks == 10_000_000


def test_arguments_of_a_note_are_kept() -> None:
    found = gpu('gpu G extends MI300X { gemm { error 7 % @fitted(n=50, error=7 %) "a table" } }')
    origins = {each.path: each for each in found.provenance}
    assert origins["G.gemm.error"].source == "a table (n=50, error=7 %)"
    assert found.gemm.validated


def test_a_source_covers_its_own_block_only() -> None:
    found = gpu('gpu G extends MI300X { sms 304; launch { source measured "here"; kernel 1 us; event 2 us @assumed } }')
    origins = {each.path: each.origin for each in found.provenance}
    assert origins["G.launch.kernel"] is Origin.MEASURED
    assert origins["G.launch.event"] is Origin.ASSUMED
    assert origins["G.sms"] is Origin.ASSUMED
    assert origins["G.line"] is Origin.NOMINAL


def test_a_library_behind_an_alias() -> None:
    found = system('use "amd/mi300x" as amd\nsystem s { gpus 4 x amd.MI300X; fabric ring(amd.xgmi, both_ways=false) }')
    assert found.num_ranks == 4 and not found.fabric.both_ways
