"""Traces of torch.profiler: pairs by size and time, written as workloads; long, cut off and hostile ones."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magus.advisor.measured.traces import chrome
from magus.advisor.measured.traces.chrome import ChromeTrace, TraceError
from magus.advisor.measured.traces.kineto import read_run
from magus.advisor.measured.traces.run import PairShape, TracedRun, find_pairs
from magus.advisor.measured.traces.workloads import HEAD, is_trace, read_traces
from magus.compiler import CompileError, compile_text
from magus.compiler.ir import DType, Pattern
from magus.compiler.text.diagnostics import Report, render_text
from magus.compiler.text.fmt import format_text
from tests.helpers.hostile_text import EVERYTHING, is_safe
from tests.helpers.marks import examples
from tests.helpers.traces import HALF, LAYERS, collective, gemm, layer, trace

WHOLE = 4096 * 8192
OTHER = collective("allreduce", (8, 8), 0, 1)


def pieces(text: str, size: int = 1 << 16) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


def run_of(text: str, size: int = 1 << 16) -> TracedRun:
    return read_run(ChromeTrace(pieces(text, size)))


def written(text: str, gpu: str = "", name: str = "step.json") -> str:
    """The workloads of a trace.

    Raises
    ------
    CompileError
        If it is refused.
    """
    report = Report()
    with report.attempt():
        return read_traces([(name, lambda: read_run(ChromeTrace(pieces(text))))], gpu, report).text
    raise CompileError(report.diagnostics)


def refused(text: str, gpu: str = "") -> tuple[str, str]:
    with pytest.raises(CompileError) as caught:
        written(text, gpu)
    (found,) = caught.value.diagnostics
    return found.code.name, found.message


def test_workloads_of_layers() -> None:
    text = written(LAYERS)
    compiled = compile_text(text)
    first, second = compiled.scenario("ag_gemm_1").case, compiled.scenario("gemm_rs_2").case

    assert text == format_text(text)
    assert (first.shape.pattern, second.shape.pattern) == (Pattern.AG_GEMM, Pattern.GEMM_RS)
    assert (first.num_ranks, first.gpu.name) == (8, "H100")
    shapes = [each.shape.gemm for each in (first, second)]
    assert [(shape.m, shape.n, shape.k) for shape in shapes if shape is not None] == [
        (4096, 3584, 8192),
        (4096, 8192, 3584),
    ]
    assert "5 times in the trace, medians: all_gather 192.0 us, GEMM 370.0 us, both together 570.0 us; 0% of" in text
    assert "30% of the reduce_scatter hidden" in text
    assert "# Predicted, each alone: all_gather 210.2 us, GEMM 311.3 us." in text
    assert "5 of 15 collectives fit no GEMM" in text and "rank 3" in text


def test_medians_and_the_order_of_time() -> None:
    pairs = find_pairs(run_of(LAYERS))

    assert [(pair.count, pair.collective_us, pair.hidden) for pair in pairs] == [(5, 192.0, 0.0), (5, 200.0, 0.3)]
    assert pairs[0].shape == PairShape("all_gather", 4096, 3584, 8192, DType.BF16, 8)


@pytest.mark.parametrize("rows", [256, 3])
def test_a_sum_of_all_ranks(rows: int) -> None:
    events = [*gemm(1, (rows, 512, 128), 0, 10), collective("allreduce", (rows * 512, rows * 512), 5, 20, 4)]
    text = written(trace(events))

    assert "y = all_reduce(gemm(x, w))" in text and "system node_4 { gpus 4 x H100" in text
    assert "25% of the all_reduce hidden" in text.replace("\n# ", " ")


def test_kernels_of_one_operation_are_one_gemm() -> None:
    events = gemm(1, (256, 512, 128), 100, 10)
    events.append(dict(events[1], ts=115, dur=5))
    (found,) = run_of(trace(events)).gemms

    assert (found.start_us, found.end_us) == (100, 120)


def test_operations_with_a_bias_and_fp8() -> None:
    both = [*gemm(1, (256, 512, 128), 0, 10), *gemm(2, (256, 512, 128), 20, 10, "c10::Float8_e4m3fn")]
    both[0] = dict(both[0], name="aten::addmm", args=dict(both[0]["args"]))
    both[0]["args"]["Input Dims"] = [[512], [256, 128], [128, 512], [], []]
    both[0]["args"]["Input type"] = [HALF, HALF, HALF, "Scalar", "Scalar"]
    both[2] = dict(both[2], name="aten::_scaled_mm")

    assert [(found.m, found.n, found.k, found.dtype) for found in run_of(trace(both)).gemms] == [
        (256, 512, 128, DType.FP16),
        (256, 512, 128, DType.FP8),
    ]


@pytest.mark.parametrize(
    "events",
    [
        [collective("_allgather_base", (WHOLE // 8, WHOLE), 500, 10), *gemm(1, (4096, 512, 8192), 0, 50)],
        [collective("_allgather_base", (WHOLE // 8, WHOLE), 0, 10), *gemm(1, (4096, 512, 8192), 1100, 50)],
        [collective("_allgather_base", (WHOLE // 8, WHOLE), 0, 10), *gemm(1, (4096, 512, 8192), 20, 50, HALF)],
        [collective("_allgather_base", (WHOLE // 8, WHOLE), 0, 10), *gemm(1, (4096, 512, 8191), 20, 50)],
        [collective("_allgather_base", (WHOLE // 3, WHOLE), 0, 10, 3), *gemm(1, (4096, 512, 8192), 20, 50)],
        [collective("_allgather_base", (WHOLE, WHOLE), 0, 10, 1), *gemm(1, (4096, 512, 8192), 20, 50)],
        [collective("_reduce_scatter_base", (WHOLE, WHOLE // 8), 0, 10), *gemm(1, (4096, 8192, 64), 20, 50)],
        [collective("broadcast", (WHOLE, WHOLE), 0, 10), OTHER, *gemm(1, (4096, 8192, 64), 20, 50)],
    ],
    ids=["before", "late", "type", "size", "rows", "alone", "sum first", "broadcast"],
)
def test_what_is_no_pair(events: list[dict[str, Any]]) -> None:
    assert refused(trace(events))[0] == "MGS632"


def test_pairs_of_several_nodes_are_left_out() -> None:
    both = trace([*layer(0, 0.0, 16), *layer(1, 5000.0, 8)])

    assert "2 kinds of pairs have more ranks than a node of the library: left out" in written(both)
    assert refused(trace(layer(0, 0.0, 16)))[0] == "MGS632"


@pytest.mark.parametrize(
    ("text", "gpu", "code", "says"),
    [
        (trace(layer(0, 0.0), gpu="NVIDIA L40S"), "", "MGS604", "the trace says 'NVIDIA L40S'"),
        (LAYERS, "H1000", "MGS604", "no GPU 'H1000'"),
        (trace([]).replace('"kernel"', '"cpu"'), "", "MGS631", "no kernels of a GPU"),
        (trace([collective("allreduce", (8, 8), 0, 1)]), "", "MGS631", "no GEMM whose shape"),
        (trace(gemm(1, (8, 8, 8), 0, 1)), "", "MGS631", "no collective"),
        ('{"schemaVersion": 1}', "", "MGS630", "no list traceEvents"),
        ('{"schemaVersion": 1', "", "MGS630", "no list traceEvents"),
        ('{"schemaVersion" 1}', "", "MGS630", "':' is missing"),
        ('{"traceEvents": {}}', "", "MGS630", "traceEvents is no list"),
        (
            '{"traceEvents": [{"ph": "X',
            "",
            "MGS631",
            "; the trace ends early or is damaged (no JSON: Unterminated string)",
        ),
        ("[]", "", "MGS630", "'{' is missing"),
        ("", "", "MGS630", "'{' is missing"),
        ('{"schemaVersion": ' + "[" * 100_000, "", "MGS630", "nested too deeply"),
        ('{"schemaVersion": ' + "9" * 5000 + ', "a": 1}', "", "MGS630", "too many digits"),
    ],
)
def test_bad_traces(text: str, gpu: str, code: str, says: str) -> None:
    found, message = refused(text, gpu)

    assert found == code
    assert says in message


def test_a_gpu_that_is_named() -> None:
    text = written(trace(layer(0, 0.0), gpu="AMD Instinct MI300X"))
    other = written(trace(layer(0, 0.0), gpu="NVIDIA L40S"), "h800")

    assert "fabric full_mesh(xgmi)" in text and "Predicted, each alone: all_gather 221.2 us" in text
    assert "the GPU is H800 because --gpu says so; the trace says 'NVIDIA L40S'" in other


def test_a_trace_that_is_cut_off_keeps_its_whole_events() -> None:
    whole = run_of(LAYERS)
    part = run_of(LAYERS[: len(LAYERS) * 2 // 3])

    assert whole.notes == () and "ends early or is damaged" in part.notes[0]
    assert part.gemms == whole.gemms[: len(part.gemms)] and len(part.gemms) > 4
    assert "ends early" in written(LAYERS[: len(LAYERS) * 2 // 3])


@pytest.mark.parametrize("size", [1, 2, 7, 64, 4096])
def test_pieces_of_any_size_give_the_same(size: int) -> None:
    text = trace(layer(0, 1.0))
    odd = '{"a": 12345, "traceEvents": [1, {"b": 12}, 34]}'

    assert run_of(text, size) == run_of(text)
    assert list(ChromeTrace(pieces(odd, size)).events()) == [{"b": 12}]


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chrome, "MAX_VALUE", 1000)
    with pytest.raises(TraceError, match="a value is too long"):
        run_of('{"a": "' + "x" * 5000, 100)
    assert "a value is too long" in run_of('{"traceEvents": [{"a": "' + "x" * 5000, 100).notes[0]
    monkeypatch.setattr(chrome, "MAX_EVENTS", 4)
    assert "only the first 4 events" in run_of(trace(layer(0, 0.0))).notes[0]
    monkeypatch.setattr(chrome, "MAX_TEXT", 3000)
    assert "the text is too long" in run_of('{"traceEvents": [' + "{}, " * 2 + " " * 9000, 100).notes[0]


def test_names_stay_in_their_comments() -> None:
    text = written(trace(layer(0, 0.0), gpu=f"{EVERYTHING} H100"), "H100", name=f"/tmp/\n{EVERYTHING}.json")

    assert is_safe(text)
    assert compile_text(text).workloads


def test_what_a_trace_begins_with() -> None:
    assert is_trace(LAYERS[:HEAD]) and is_trace('\ufeff {"traceEvents": []}')
    assert not is_trace("") and not is_trace('{"devices": []}') and not is_trace('"traceEvents"')


@st.composite
def damages(draw: st.DrawFn) -> str:
    data = bytearray(trace(layer(0, 1.0)).encode())
    for _ in range(draw(st.integers(0, 8))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255) | st.sampled_from(b'"{}[],:\n -.0189e'))
    start, end = sorted(draw(st.lists(st.integers(0, len(data)), min_size=2, max_size=2)))
    if draw(st.booleans()):
        del data[start:end]
    return bytes(data).decode("utf-8", "replace")


@examples(150)
@given(damages())
def test_damaged_traces(text: str) -> None:
    try:
        found = written(text)
    except CompileError as error:
        assert error.diagnostics and is_safe(render_text(error.diagnostics))
        return
    assert is_safe(found) and compile_text(found).workloads


@pytest.mark.parametrize("value", [None, True, -1, 0, 1e400, "8", [], {}, [[True, 1], [1, 1]], 10**30])
def test_values_of_every_kind(value: object) -> None:
    events = layer(0, 1.0)
    for number, event in enumerate(events):
        for key in ("ts", "dur", "name", "cat", "args"):
            changed = [*events[:number], {**event, key: value}, *events[number + 1 :]]
            run_of(json.dumps({"traceEvents": changed, "deviceProperties": value}))
        for key in event["args"]:
            changed = [*events[:number], {**event, "args": {**event["args"], key: value}}, *events[number + 1 :]]
            find_pairs(
                run_of(json.dumps({"distributedInfo": value, "deviceProperties": [value], "traceEvents": changed}))
            )
