"""Files of runtimes about whole layers: what they say, and what their formats cannot."""

import json
from dataclasses import replace

import pytest

from magus.advisor.implementations.offers import Offer, Offers, Order
from magus.advisor.implementations.predict import Promise
from magus.advisor.layers.transformer_engine import TeMethods, TeSearch
from magus.advisor.policy.table import PolicyTable, SweepPoint, table_of
from magus.advisor.targets import TARGETS, Refused
from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.ir import EngineChoice, EngineKind, OpChoice, OpMode, Scenario, Schedule
from magus.compiler.resolve.schedules.from_text import SERIAL
from tests.advisor.layers.offers.test_te_layers import graph_of
from tests.helpers.layer_advice import advice_by_hand
from tests.helpers.scenarios.mlp_backward import backward

SM16 = EngineChoice(EngineKind.SM, 16)
DMA = EngineChoice(EngineKind.DMA, 3)
TOKENS = (1024, 2048, 4096)


def sweep_of(
    scenario: Scenario,
    choice: Schedule = SERIAL,
    offer: Order | Offer | None = None,
    ticks: dict[int, int] | None = None,
) -> PolicyTable:
    """A table whose points recommend ``choice``; ``ticks`` are those of the offer by tokens, 1000 without overlap."""
    points = []
    for tokens in ticks or {1024: 0}:
        known = () if offer is None else (offered(offer, ticks[tokens] if ticks else None),)
        advice = replace(advice_by_hand(scenario, choice, 700, 1000), offers=Offers("torch_nccl", 1000.0, known))
        named = {SERIAL.name: 1000, choice.name: advice.recommended.ticks}
        points.append(SweepPoint((("M", str(tokens)),), advice, choice, named))
    return table_with(*points)


def table_with(*points: SweepPoint) -> PolicyTable:
    """The table of so many points, without rules."""
    return table_of((), [point.advice for point in points], points, simulated=True)


def offered(offer: Order | Offer, ticks: int | None) -> Offer:
    """What takes so many ticks, of 1000 by the library."""
    if isinstance(offer, Order):
        took = offer.all_ticks if ticks is None else ticks
        return Offer(offer.implementation, took, Promise(1000 / took, None, offer.unknown), order=offer)
    took = round(offer.us) if ticks is None else ticks
    return replace(offer, us=took, promise=replace(offer.promise, speedup=1000 / took))


def text_of(name: str, table: PolicyTable, **options: str) -> str:
    return next(each for each in TARGETS if each.name == name).text(table, options)


def te_offer(scenario: Scenario, methods: TeMethods | None = None) -> Order:
    search = TeSearch(scenario.system, scenario.workload)
    table = search.table(methods or search.defaults())
    return Order("transformer_engine", "the table", table, 800, unknown="the costs of its calls")


def blocks(text: str) -> dict[str, dict[str, str]]:
    """The blocks of a file in the little of YAML that it needs."""
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        key, _, value = line.strip().partition(":")
        if line.startswith("  "):
            found[list(found)[-1]][key] = value.strip()
        else:
            found[key] = {}
    return found


def test_a_backward_pass_is_a_table_of_transformer_engine() -> None:
    scenario = graph_of("back")
    text = text_of("megatron", sweep_of(scenario, offer=te_offer(scenario)))

    gathered, scattered = ({"method": "bulk", "num_sm": str(sms)} for sms in (24, 32))
    ring = {"method": "ring_exchange", "use_ce": "true"}
    assert blocks(text) == {
        "fc2_dgrad": ring,
        "fc1_dgrad": gathered,
        "fc1_wgrad": scattered,
        "proj_dgrad": ring,
        "qkv_dgrad": gathered,
        "qkv_wgrad": scattered,
    }
    assert "# M = 1024: 1.25x over torch_nccl; the recommended schedule 1.00x" in text
    assert "# flags: --tp-comm-overlap --tp-comm-overlap-cfg FILE" in text
    assert all(len(line) <= 120 for line in text.splitlines())


def python_of(text: str) -> tuple[dict[str, dict[str, object]], dict[str, bool]]:
    """``UB_CFGS`` and ``LAYER`` of a file of Python."""
    found: dict[str, dict[str, dict[str, object]]] = {}
    exec(text, found)
    return found["UB_CFGS"], found["LAYER"]  # type: ignore[return-value]


@pytest.mark.parametrize("workload", ["back", "layer"])
def test_a_program_of_its_own_gets_what_megatron_gets(workload: str) -> None:
    scenario = graph_of(workload)
    sweep = sweep_of(scenario, offer=te_offer(scenario))
    text = text_of("transformer-engine", sweep)
    layers, arguments = python_of(text)

    said = {name: {key: str(value) for key, value in of.items()} for name, of in layers.items()}
    yaml = blocks(text_of("megatron", sweep))
    assert said == {
        name: {key: value.replace("true", "True") for key, value in of.items()} for name, of in yaml.items()
    }
    assert arguments == {"ub_tp_comm_overlap": True} and len(layers) > 3
    assert "initialize_ub(" in text and all(len(line) <= 120 for line in text.splitlines())


def test_flags_of_megatron_are_arguments_of_a_layer() -> None:
    scenario, splits = graph_of("back"), ("ring_exchange", 0)
    names = ("fc1_dgrad", "qkv_dgrad")
    for methods, said in (
        (TeMethods(scatters_back=tuple((name, *splits) for name in names)), {"ub_overlap_rs_dgrad": True}),
        (TeMethods(gathers=False, bulk_wgrad=False), {"ub_overlap_ag": False, "ub_bulk_wgrad": False}),
        (TeMethods(bulk_dgrad=False), {"ub_bulk_dgrad": False}),
    ):
        offer = te_offer(scenario, methods)
        _, arguments = python_of(text_of("transformer-engine", sweep_of(scenario, offer=offer)))
        assert arguments == {"ub_tp_comm_overlap": True, **said}
        assert len(offer.table.flags) == len(arguments)


def test_a_forward_pass_is_one_too() -> None:
    scenario = graph_of("layer")
    found = blocks(text_of("megatron", sweep_of(scenario, offer=te_offer(scenario))))

    pipeline = {"method": "pipeline", "num_sm": "32", "num_splits": "4"}
    assert found["proj_fprop"] == found["fc2_fprop"] == pipeline
    assert found["qkv_fprop"]["method"] == found["fc1_fprop"]["method"] == "ring_exchange"


def test_two_tables_are_refused() -> None:
    scenario = backward()
    one, other = te_offer(scenario), te_offer(scenario, TeMethods(gathers=False))
    first, second = sweep_of(scenario, offer=one).points[0], sweep_of(scenario, offer=other).points[0]
    sweep = table_with(first, replace(second, settings=(("M", "2048"),)))

    with pytest.raises(Refused, match="M = 2048 wants another than M = 1024"):
        text_of("megatron", sweep)


@pytest.mark.parametrize("ticks", [990, 1200])
def test_where_nothing_pays_the_flag_is_named(ticks: int) -> None:
    scenario = backward()
    offer = replace(te_offer(scenario), ticks=ticks)

    with pytest.raises(Refused, match="no overlap of Transformer Engine pays") as caught:
        text_of("megatron", sweep_of(scenario, offer=offer))
    assert "--tp-comm-overlap" in caught.value.rejection.hint


def test_without_a_table_it_says_what_has_one() -> None:
    with pytest.raises(Refused, match="no table of Transformer Engine is known for back"):
        text_of("megatron", sweep_of(backward()))


def test_version_1_has_no_copy_engines() -> None:
    scenario = backward()
    with pytest.raises(Refused, match="Transformer Engine 1 does not use"):
        text_of("megatron", sweep_of(scenario, offer=te_offer(scenario)), te="1")
    bulk = te_offer(scenario, TeMethods(gathers=False))
    assert set(blocks(text_of("megatron", sweep_of(scenario, offer=bulk), te="1"))) == {"fc1_dgrad", "fc1_wgrad"}


def fused(error: float | None = 0.12) -> Offer:
    return Offer("torch_async_tp", 800.0, Promise(1.25, error), ops=("u",))


@pytest.mark.parametrize("error", [0.12, None])
def test_vllm_has_the_tokens_from_which_fusion_pays(error: float | None) -> None:
    scenario = graph_of("layer")
    rows = {tokens: with_tokens(tokens) for tokens in TOKENS}
    sweep = sweep_of(scenario, offer=fused(error), ticks={1024: 1100, 2048: 450, 4096: 400})
    points = tuple(
        replace(point, advice=replace(point.advice, scenario=rows[int(dict(point.settings)["M"])]))
        for point in sweep.points
    )
    text = text_of("vllm", replace(sweep, points=points))

    config = json.loads(text.splitlines()[-1].partition("'")[2].rstrip("'"))
    assert config["pass_config"] == {"enable_sp": True, "fuse_gemm_comms": True, "sp_min_token_num": 2048}


def with_tokens(tokens: int) -> Scenario:
    text = f"""
    use "nvidia/h100"
    system s {{ gpus 4 x H100; fabric switch(nvswitch, link=nvlink) }}
    workload layer on s {{
      x = tensor bf16[{tokens}, 1024] shard rows
      wu = tensor bf16[1024, 4096] shard cols
      wd = tensor bf16[4096, 1024] shard rows
      y = add(x, reduce_scatter(gemm(gelu(gemm(all_gather(x), wu)), wd)))
    }}
    """
    (scenario,) = compile_text(text).workloads
    return scenario


def test_where_fusion_pays_nowhere_vllm_is_reported_so() -> None:
    scenario = graph_of("layer")
    text = text_of("vllm", sweep_of(scenario, offer=fused(), ticks={1024: 1100}))

    assert '"fuse_gemm_comms": false' in text and "sp_min_token_num" not in text


def test_vllm_runs_no_backward_pass_and_has_one_threshold() -> None:
    with pytest.raises(Refused, match="back is a backward pass"):
        text_of("vllm", sweep_of(backward()))
    scenario = graph_of("layer")
    with pytest.raises(Refused, match="no longer at M = 2048"):
        text_of("vllm", sweep_of(scenario, offer=fused(), ticks={1024: 500, 2048: 1100}))
    with pytest.raises(Refused, match="is not known"):
        text_of("vllm", sweep_of(scenario))


WHOLE = Schedule(
    "joint", (OpMode("dx", separate=OpChoice("serial", 4, SM16)), OpMode("xg", OpChoice("serial", 4, SM16)))
)


@pytest.mark.parametrize("name", ["nccl", "rccl", "ncclx"])
def test_collectives_that_are_left_whole_have_as_many_channels_as_the_schedule_sms(name: str) -> None:
    rows = [line for line in text_of(name, sweep_of(backward(), WHOLE)).splitlines() if line[0] != "#"]
    num_bytes = 1024 * 256 * 2

    if name == "ncclx":
        assert rows == [f"{call},[{num_bytes // 4},{num_bytes // 4}],ring,simple,16,1,4" for call in CALLS]
    else:
        assert rows[:2] == [f"{call},{num_bytes},{num_bytes},ring,simple,16,1,4" for call in CALLS]
        assert (len(rows) > 2) is (name == "nccl")


CALLS = ("allgather", "reducescatter")


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        ((OpMode("dx", separate=OpChoice("serial", 4, DMA)),), "moves data by copy engines"),
        ((OpMode("dx", OpChoice("hetero_fused_1d", 8, SM16)),), "is moved in pieces"),
        ((), "no collective runs whole during kernels"),
        ((OpMode("xg", OpChoice("halving_doubling", 4, SM16, algorithm="halving_doubling")),), "no name for"),
    ],
)
def test_what_a_tuner_cannot_say_is_refused(modes: tuple[OpMode, ...], message: str) -> None:
    with pytest.raises(Refused, match=message) as caught:
        text_of("nccl", sweep_of(backward(), Schedule("joint", modes)))
    assert caught.value.rejection.code is Code.MGS550 and caught.value.rejection.hint


def test_calls_of_one_size_have_one_setting() -> None:
    modes = (
        OpMode("dh", separate=OpChoice("serial", 4, SM16)),
        OpMode("xg", OpChoice("serial", 4, EngineChoice(EngineKind.SM, 8))),
    )
    with pytest.raises(Refused, match="calls of one size need two settings"):
        text_of("nccl", sweep_of(backward(), Schedule("joint", modes)))
