from dataclasses import replace
from fractions import Fraction

import pytest

from magus.compiler import CompileError, compile_text
from magus.compiler.ir import TICKS_PER_US, Cache, CopyProtocol, DType, Gpu, Link, Origin, Switch, Sync, System
from magus.compiler.text.names import shipped_libraries

GPUS = [name for name in shipped_libraries() if not name.startswith(("implementations/", "stacks/"))]


def system(text: str, name: str = "s") -> System:
    body = "a = tensor bf16[8, 8]; y = gemm(a, a)"
    return compile_text(f"{text}\nworkload g on {name} {{ {body} }}").scenario("g").case.system


def gpu(text: str) -> Gpu:
    return system(f'use "amd/mi300x"\n{text}\nsystem s {{ gpus 8 x G; fabric full_mesh(xgmi) }}').gpu


def shipped(library: str) -> System:
    """The one GPU of a library on the fabric that it ships."""
    vendor, _, name = library.partition("/")
    fabric = "full_mesh(xgmi)" if vendor == "amd" else "switch(nvswitch, link=nvlink)"
    return system(f'use "{library}"\nsystem s {{ gpus 8 x {name.upper()}; fabric {fabric} }}')


def child_of_h100(block: str) -> Gpu:
    fabric = "switch(nvswitch, link=nvlink)"
    text = f'use "nvidia/h100"\ngpu G extends H100 {{ {block} }}\nsystem s {{ gpus 8 x G; fabric {fabric} }}'
    return system(text).gpu


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
    found = system('use "amd/mi300x" as amd\nsystem s { gpus 4 x amd.MI300X; fabric ring(amd.xgmi, both_ways=no) }')
    assert found.num_ranks == 4 and not found.fabric.both_ways


@pytest.mark.parametrize("library", GPUS)
def test_every_library_is_whole_and_says_where_its_numbers_come_from(library: str) -> None:
    found = shipped(library)
    devices: list[Gpu | Link | Switch] = [found.gpu, found.fabric.link]
    devices += [found.fabric.switch] if found.fabric.switch is not None else []
    for device in devices:
        assert all(each.source or each.origin is Origin.ASSUMED for each in device.provenance)
    assert found.gpu.hbm.achieved_bytes_per_s < found.gpu.hbm.peak_bytes_per_s
    assert found.fabric.link.achieved_bytes_per_s < found.fabric.link.peak_bytes_per_s


def test_siblings_take_kernels_and_collectives_from_their_parent() -> None:
    h100, h200, b200, gb200, b300 = (
        shipped(f"nvidia/{name}").gpu for name in ("h100", "h200", "b200", "gb200", "b300")
    )
    assert h200.hbm.peak_bytes_per_s == 4_800_000_000_000 and h100.hbm.peak_bytes_per_s == 3_350_000_000_000
    assert (h200.gemm.tiles, h200.gemm.k_step_ticks) == (h100.gemm.tiles, h100.gemm.k_step_ticks)
    for child, parent in ((h200, h100), (gb200, b200), (b300, b200)):
        assert child.collectives is not None and parent.collectives is not None
        assert child.collectives.simple == parent.collectives.simple
        assert (child.collectives.nvls, child.gemm.pair_tiles) == (parent.collectives.nvls, parent.gemm.pair_tiles)
    assert gb200.peak(DType.BF16) == 2500 * 10**12
    assert gb200.gemm.mma_fraction == b200.gemm.mma_fraction < b300.gemm.mma_fraction


def test_constants_of_fp8_are_inherited_number_by_number_and_are_whole() -> None:
    h100, b200, b300 = (shipped(f"nvidia/{name}").gpu.gemm.fp8 for name in ("h100", "b200", "b300"))
    assert h100 is not None and b200 is not None and b300 is not None
    slower = child_of_h100("gemm { fp8 { mma 40 % } }").gemm
    assert slower.fp8 is not None and slower.fp8.mma_fraction == Fraction(2, 5) != slower.mma_fraction
    assert (slower.fp8.tile_ticks, slower.fp8.tiles) == (h100.tile_ticks, h100.tiles)
    assert (slower.fp8.validated, h100.validated, b200.validated, b300.validated) == (False, True, True, False)
    assert slower.of(DType.FP8) is slower.fp8 and slower.of(DType.BF16) is slower
    with pytest.raises(CompileError, match=r"MGS209.*gemm\.fp8\.start"):
        system(
            'use "nvidia/a100"\ngpu G extends A100 { gemm { fp8 { mma 40 % } } }\n'
            "system s { gpus 8 x G; fabric switch(nvswitch, link=nvlink) }"
        )


@pytest.mark.parametrize("other, missing", [("after 1 ms", "clock"), ("clock 80 %", "after")])
def test_a_clock_of_a_type_is_given_whole(other: str, missing: str) -> None:
    text = f'use "nvidia/h100" as h\ngpu G extends h.H100 {{ gemm {{ fp8 {{ sustained_{other} }} }} }}\n'
    text += "system s { gpus 1 x G; fabric full_mesh(h.nvlink) }\nworkload w on s { y = norm(tensor bf16[64, 64]) }"

    with pytest.raises(CompileError, match=rf"MGS209.*gemm\.fp8\.sustained_{missing}"):
        compile_text(text).scenario("w")


def test_a_gemm_form_of_its_own_drops_the_constants_of_types() -> None:
    own = (
        "start 2 us; mma 80 %; hbm 80 %; tile 1 us; k_step 90 ns; split 2 us; split_bandwidth 9 TB/s; exponent 3; "
        "quantisation 3 %; error 5 %; resolution 8 %"
    )
    assert child_of_h100(f"gemm {{ {own} }}").gemm.fp8 is None
    kept = child_of_h100(f"gemm {{ {own}; fp8 {{ {own} }} }}").gemm
    assert kept.fp8 == replace(kept, fp8=None)


def test_b200_has_tiles_of_two_sms() -> None:
    model = shipped("nvidia/b200").gpu.gemm
    assert len(model.tiles) == 12 and len(model.pair_tiles) == 9
    assert (256, 256) in model.pair_tiles and (256, 256) not in model.tiles


def test_hopper_and_blackwell_have_clusters_and_others_none() -> None:
    of_gpu = {name: shipped(name).gpu.gemm.cluster for name in GPUS}
    assert {of_gpu[f"nvidia/{name}"] for name in ("h100", "h200", "b200", "gb200", "b300")} == {2}
    assert {of_gpu[name] for name in ("nvidia/a100", "amd/mi300x", "amd/mi355x")} == {1}
    assert child_of_h100("gemm { cluster 4 }").gemm.cluster == 4


@pytest.mark.parametrize("cluster", ["0", "17", "1.5"])
def test_a_cluster_has_1_to_16_tiles(cluster: str) -> None:
    with pytest.raises(CompileError):
        child_of_h100(f"gemm {{ cluster {cluster} }}")


def test_collectives_of_h100() -> None:
    found = shipped("nvidia/h100").gpu.collectives
    assert found is not None and found.nvls is not None and found.all_to_all is not None
    assert found.start_ticks == 479_000_000 and found.ll.start_ticks == 0 and found.ll.step_ticks == 77_000_000
    assert (found.simple_from_bytes, found.reduce_factor) == (1 << 20, Fraction(93, 100))
    assert (found.nvls.from_bytes, found.nvls.ranks) == (32 << 20, 8)
    assert found.all_to_all.ll128.step_ticks == 0 and found.all_to_all.own_bytes_per_s == 1_566_000_000_000
    assert found.validated


def test_parts_that_a_profile_leaves_out_are_none() -> None:
    found = shipped("amd/mi355x").gpu
    assert (found.noc, found.dma.phases, found.sm_copy.saturation, found.gemm.pair_tiles) == (None,) * 3 + ((),)
    assert shipped("nvidia/a100").gpu.collectives.nvls is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("block", "gemm", "collectives"),
    [
        ("launch { kernel 3 us }", True, True),
        ("hbm { latency 1 us }", False, False),
        ("peak bf16 1000 TFLOP/s", False, True),
        ("gemm { tiles [[128, 128]] }", False, True),
        ("gemm { pair_tiles [[256, 128]] }", False, True),
        ("collectives { nvls { from 8 MiB } }", True, False),
        ("collectives { simple_from 8 MiB; error 4 % @fitted }", True, True),
    ],
)
def test_what_was_measured_on_a_parent_does_not_validate_another_gpu(block: str, gemm: bool, collectives: bool) -> None:
    found = child_of_h100(block)
    assert found.collectives is not None
    assert (found.gemm.validated, found.collectives.validated) == (gemm, collectives)
    origins = {each.path: each.origin for each in found.provenance}
    assert (origins["G.gemm.resolution"] is Origin.DERIVED) != gemm


def test_a_child_can_restate_one_constant_of_an_inherited_part() -> None:
    found = child_of_h100("collectives { nvls { from base.collectives.nvls.from / 2 } }").collectives
    parent = shipped("nvidia/h100").gpu.collectives
    assert found is not None and found.nvls is not None and parent is not None and parent.nvls is not None
    assert found.nvls.from_bytes == 16 << 20 and found.nvls.bytes_per_s == parent.nvls.bytes_per_s
    assert found.all_to_all == parent.all_to_all


def test_tiles_of_one_kind_are_inherited_where_the_other_is_restated() -> None:
    found = child_of_h100("gemm { pair_tiles [[256, 128]] }").gemm
    assert found.pair_tiles == ((256, 128),) and len(found.tiles) == 12


def test_a_source_covers_the_blocks_inside_collectives() -> None:
    found = child_of_h100('collectives { source measured "here"; nvls { from 1 MiB } }')
    assert {each.path: each.source for each in found.provenance}["G.collectives.nvls.from"] == "here"


def test_siblings_stand_in_one_file_under_prefixes() -> None:
    text = 'use "nvidia/h100" as old\nuse "nvidia/h200" as new\n'
    found = system(f"{text}system s {{ gpus 8 x new.H200; fabric switch(old.nvswitch, link=new.nvlink) }}")
    assert found.gpu.name == "H200" and found.fabric.link.peak_bytes_per_s == 450 * 10**9


def test_what_an_engine_may_have_under_way_stands_alone() -> None:
    assert child_of_h100("dma { outstanding 64 KiB }").dma.outstanding_bytes == 64 << 10
    for name in ("a100", "a800", "h100", "b200", "gb200"):
        assert shipped(f"nvidia/{name}").gpu.dma.outstanding_bytes == 3 << 20
    assert shipped("amd/mi355x").gpu.dma.outstanding_bytes is None


def test_what_a_profile_may_say_of_waiting_commands_and_channels_is_left_out_by_default() -> None:
    plain = child_of_h100("")
    assert plain.sync == Sync() and plain.hbm.channels == 1 and plain.sm_copy.outstanding_bytes is None
    assert (plain.dma.issue_interval_ticks, plain.dma.packet_bytes, plain.dma.packet_ticks) == (0, None, 0)

    found = child_of_h100(
        "sync { poll_interval 1 us; monitor_arm 2 us; monitor_wake 3 us; monitor_entries 64; graph_launch 4 us }\n"
        "dma { issue_interval 1 us; packet 4 KiB; packet_cost 2 us; prelaunch 3 us }\n"
        "sm_copy { outstanding 16 KiB }\nhbm { channels 80 }"
    )

    assert found.sync == Sync(TICKS_PER_US, 2 * TICKS_PER_US, 3 * TICKS_PER_US, 64, 4 * TICKS_PER_US)
    assert (found.dma.issue_interval_ticks, found.dma.prelaunch_ticks) == (TICKS_PER_US, 3 * TICKS_PER_US)
    assert (found.dma.packet_bytes, found.dma.packet_ticks) == (4096, 2 * TICKS_PER_US)
    assert (found.sm_copy.outstanding_bytes, found.hbm.channels) == (16 << 10, 80)


def test_links_say_their_protocols_and_switches_what_they_do() -> None:
    text = (
        'use "nvidia/h100"\n'
        "link l extends nvlink { protocols ll128, simple }\nlink child extends l { latency 1 us }\n"
        "switch s extends nvswitch { multicast no; reduces yes }\n"
        "system node { gpus 8 x H100; fabric switch(s, link=child) }"
    )
    fabric = system(text, "node").fabric

    assert fabric.link.protocols == (CopyProtocol.SIMPLE, CopyProtocol.LL128)
    assert fabric.switch is not None and (fabric.switch.multicast, fabric.switch.reduces) == (False, True)
    usual = shipped("amd/mi300x").fabric.link
    assert usual.protocols == (CopyProtocol.SIMPLE, CopyProtocol.LL)


def test_a_cache_in_front_of_memory_is_optional_and_the_last_before_it() -> None:
    assert shipped("nvidia/h100").gpu.mall is None
    mi300x = shipped("amd/mi300x").gpu
    assert mi300x.last_cache == mi300x.mall == Cache(256 << 20, 1, 5_800 * 10**9, 14_571_429)
    assert shipped("amd/mi325x").gpu.mall == mi300x.mall

    h100 = child_of_h100("")
    assert h100.last_cache == h100.l2
    assert child_of_h100("cache l2 { per 66 sms }").last_cache is None
    both = child_of_h100("cache memory { size 1 GiB; bandwidth 4 TB/s; latency base.l2.latency }")
    assert both.last_cache == both.mall == Cache(1 << 30, 1, 4 * 10**12, h100.l2.latency_ticks)
    again = gpu("gpu G extends MI300X { cache memory { size base.mall.size / 4 } }")
    assert again.mall == Cache(64 << 20, 1, 5_800 * 10**9, 14_571_429)


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("cache memory { size 1 GiB }", "incomplete: mall.bandwidth, mall.latency are missing"),
        ("cache memory { size 1 GiB; per 66 sms }", "per"),
        ("cache l3 { size 1 GiB }", "the caches that are described are l2 and memory"),
    ],
)
def test_a_cache_is_whole_and_one_of_two(block: str, says: str) -> None:
    with pytest.raises(CompileError, match=says):
        child_of_h100(block)


def test_how_far_sms_look_ahead_is_left_out_by_default() -> None:
    assert child_of_h100("").hbm.look_ahead_bytes is None
    assert child_of_h100("hbm { look_ahead 32 KiB }").hbm.look_ahead_bytes == 32 << 10


def test_the_gemm_form_remembers_the_l2_that_it_was_fitted_with() -> None:
    assert shipped("nvidia/h100").gpu.gemm.fitted_l2 is None
    assert shipped("nvidia/h200").gpu.gemm.fitted_l2 is None
    assert child_of_h100("cache l2 { size 50 MiB }").gemm.fitted_l2 is None
    assert child_of_h100("cache l2 { size 25 MiB }").gemm.fitted_l2 == (50 << 20, 1)
    assert child_of_h100("cache l2 { per 66 sms }").gemm.fitted_l2 == (50 << 20, 1)
    assert child_of_h100("cache l2 { size 25 MiB }; gemm { mma 80 % }").gemm.fitted_l2 == (50 << 20, 1)
    numbers = "start mma hbm tile k_step split split_bandwidth exponent quantisation error resolution"
    whole = "; ".join(f"{name} base.gemm.{name}" for name in numbers.split())
    assert child_of_h100(f"cache l2 {{ size 25 MiB }}; gemm {{ {whole} }}").gemm.fitted_l2 is None


def test_a_type_without_constants_or_a_peak_has_those_of_one_alike() -> None:
    b200, h100 = shipped("nvidia/b200").gpu, shipped("nvidia/h100").gpu
    assert b200.peak(DType.FP8_BLOCK) == b200.peak(DType.FP8) == b200.peak(DType.MXFP8)
    assert b200.peak(DType.NVFP4) == 2 * b200.peak(DType.FP8) and h100.peak(DType.NVFP4) == h100.peak(DType.MXFP8) == 0
    assert h100.gemm.of(DType.MXFP8) is h100.gemm.fp8 and h100.grouped_of(DType.MXFP8) is h100.grouped_of(DType.FP8)
    numbers = "start 1 us; mma 80 %; hbm 80 %; tile 1 us; exponent 3; rows 50 %"
    own = child_of_h100(f"grouped {{ fp8_block {{ {numbers} }} }}")
    assert own.grouped is not None
    assert own.grouped_of(DType.FP8_BLOCK) == own.grouped.fp8_block != own.grouped_of(DType.FP8)
    assert own.grouped_of(DType.NVFP4) is None
