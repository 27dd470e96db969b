"""The recipe "Adding an operation" of CONTRIBUTING, performed with toy operations: every command takes them at once."""

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import pytest

from magus.compiler import compile_file
from magus.compiler.ir import (
    TICKS_PER_US,
    DType,
    ElementwiseShape,
    Gpu,
    KernelShape,
    OpCase,
    Shard,
    Tensor,
    TileGroup,
    operations,
)
from magus.compiler.ir.operations import CallArgument, CallArgumentKind, CallResult, KernelOperation, OperationCall
from magus.compiler.ir.operations.base import check_local, check_types, lone_tensors, mismatch
from magus.compiler.planning.build import build_op_plan
from magus.simcore.kernels import dispatch
from magus.simcore.kernels.dispatch import elementwise_work
from magus.simcore.kernels.work import KernelWork, WorkModel
from tests.helpers.commands import document, magus
from tests.helpers.scenarios.workloads import choices_of
from tests.helpers.some import some

pytestmark = pytest.mark.usefixtures("compiled_core", "one_model")
TEXT = """use "amd/mi300x"

system node {{
  gpus 4 x MI300X
  fabric full_mesh(xgmi)
}}

workload up on node {{
{body}
}}
"""


def file_with(folder: Path, *lines: str) -> Path:
    file = folder / "toy.mgs"
    file.write_text(TEXT.format(body="\n".join(f"  {line}" for line in lines)))
    return file


# An elementwise operation: compiler/ir/operations/scale.py and its line. It runs by the work model of ElementwiseShape.


@dataclass(frozen=True, slots=True)
class ScaleShape(ElementwiseShape):
    """An input of ``num_elements`` times a number."""

    operation: ClassVar[str] = "scale"


def _scale(call: OperationCall) -> CallResult:
    (x,) = lone_tensors(call)
    return CallResult(replace(x, name=call.result), ScaleShape(x.rows * x.cols, 1, x.dtype))


SCALE = KernelOperation(name="scale", example="scale(x)", infer=_scale)


# A row-wise one: compiler/ir/operations/norm.py and simcore/kernels/row_norm.py, each with a line.


@dataclass(frozen=True, slots=True)
class NormShape(KernelShape):
    """Each of ``rows`` normalised in ``groups`` of columns, times a weight for each column."""

    operation: ClassVar[str] = "norm"

    rows: int
    cols: int
    groups: int
    dtype: DType

    @property
    def flops(self) -> int:
        return 6 * self.rows * self.cols

    @property
    def operand_bytes(self) -> int:
        return (self.rows + 1) * self.cols * self.dtype.bytes_of(1)

    @property
    def output_bytes(self) -> int:
        return self.rows * self.cols * self.dtype.bytes_of(1)

    @property
    def text(self) -> str:
        return f"{self.dtype.value} {self.rows} x {self.cols}"


def _norm(call: OperationCall) -> CallResult:
    delivered = call.operands[0].origin in NORM.after
    check_local(call, call.operands[1:] if delivered else call.operands)
    x, w = call.tensors
    check_types([x, w])
    groups = call.arguments.get("groups", 1)
    if x.cols % groups:
        raise mismatch(f"{groups} groups do not divide {x.cols} columns of {x.name}")
    return CallResult(
        Tensor(call.result, x.dtype, x.rows, x.cols, Shard.NONE), NormShape(x.rows, x.cols, groups, x.dtype)
    )


NORM = KernelOperation(
    name="norm",
    example="norm(x, w)",
    infer=_norm,
    num_tensors=(2, 2),
    arguments=(CallArgument("groups", CallArgumentKind.COUNT),),
    after=("all_gather", "all_to_all"),
    before=("all_to_all",),
)


def _norm_work(gpu: Gpu, shape: NormShape, sms: int) -> KernelWork:
    return elementwise_work(gpu, ElementwiseShape(shape.rows * shape.cols, 1, shape.dtype), sms)


def _norm_part(scenario: OpCase, whole: NormShape, group: TileGroup) -> NormShape:
    return replace(whole, rows=sum(region.rows.size for region in group.regions))


def _norm_ticks(scenario: OpCase, whole: NormShape, share: Fraction) -> int:
    return _norm_work(scenario.gpu, whole, scenario.gpu.sms).body_ticks if share == 1 else 0


NORM_MODEL = WorkModel(NormShape, _norm_work, _norm_part, _norm_ticks)


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "OPERATIONS", (*operations.OPERATIONS, SCALE, NORM))
    monkeypatch.setattr(dispatch, "MODELS", (*dispatch.MODELS, NORM_MODEL))


X, W = "x = tensor bf16[1024, 512]", "w = tensor bf16[1, 512]"
WORKLOADS = {
    "scale": (X, "y = scale(x)"),
    "norm": (X, W, "y = norm(x, w, groups=8)"),
    "AG+norm": (f"{X} shard rows", W, "y = norm(all_gather(x), w)"),
    "A2A+norm": (X, W, "y = norm(all_to_all(x), w)"),
    "norm+A2A": (X, W, "y = all_to_all(norm(x, w))"),
}
BESIDE_A_COLLECTIVE = [name for name in WORKLOADS if "+" in name]


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_command_takes_a_new_operation(name: str, tmp_path: Path) -> None:
    file = file_with(tmp_path, *WORKLOADS[name])

    for words in (("check",), ("fmt", "--check"), ("schedules",)):
        done = magus(*words, file)
        assert done.exit_code == 0, done.output
    simulated = magus("simulate", file, "--schedule", "serial")
    assert simulated.exit_code == 0 and (name if "+" in name else "kernel") in simulated.output
    serial = document("simulate", file, "--schedule", "serial")
    advice = document("advise", file, "--top", "2", "--bespoke", "0", "--workers", "1")
    assert isinstance(serial["makespan_us"], float) and advice["candidates"]
    assert isinstance(advice["bound"], dict) and 0 < advice["bound"]["us"] <= serial["makespan_us"]


@pytest.mark.parametrize("name", BESIDE_A_COLLECTIVE)
def test_its_groups_are_the_whole_kernel_under_every_schedule(name: str, tmp_path: Path) -> None:
    scenario = compile_file(file_with(tmp_path, *WORKLOADS[name])).scenario().case
    whole = dispatch.whole_shape(scenario)
    assert whole == NormShape(1024, 512, 1, DType.BF16)

    choices = list(choices_of(scenario))
    assert {"serial", "shard_p2p"} < {choice.template for choice in choices}
    for choice in some(choices):
        steps = build_op_plan(scenario, choice).steps
        shapes = [dispatch.compute_shape(scenario, step) for step in steps if isinstance(step, TileGroup)]
        assert sum(shape.flops for shape in shapes) == whole.flops, choice


def test_it_runs_as_its_work_model_says(tmp_path: Path) -> None:
    scenarios = {
        name: compile_file(file_with(tmp_path, *WORKLOADS[name])).scenario().case for name in ("scale", "norm")
    }
    shapes = {name: scenario.shape.compute for name, scenario in scenarios.items()}
    assert shapes == {"scale": ScaleShape(1 << 19, 1, DType.BF16), "norm": NormShape(1024, 512, 8, DType.BF16)}
    gpu = scenarios["scale"].gpu
    works = [dispatch.work_of(gpu, shape, gpu.sms) for shape in shapes.values() if shape is not None]
    assert [(work.hbm_read_bytes, work.hbm_write_bytes) for work in works] == [(1 << 20, 1 << 20)] * 2

    times = [document("simulate", file_with(tmp_path, *WORKLOADS[name]))["makespan_us"] for name in scenarios]
    assert times == [pytest.approx(works[0].alone_ticks / TICKS_PER_US, rel=0.05)] * 2


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        ((X, W, "y = norm(x, w, groups=7)"), "MGS310", "7 groups do not divide 512 columns"),
        ((X, W, "y = norm(x, w, group=8)"), "MGS201", "groups"),
        ((X, "y = norm(x)"), "MGS116", "norm(x, w)"),
        ((X, "y = norn(x)"), "MGS204", "norm"),
        ((X, W, f"y = norm(all_to_all(x, rows_to={[256, 512, 128, 128]}), w)"), "MGS520", "loads that differ"),
        ((X, W, "y = all_reduce(norm(x, w))"), "MGS520", "all_reduce"),
        ((X, "y = norm(x, all_to_all(x))"), "MGS520", "norm of the result of all_to_all is not simulated"),
        ((X, "y = norm(x, all_to_all(x))"), "MGS520", "norm takes what is declared or what a kernel makes"),
    ],
)
def test_calls_of_it_are_checked(lines: tuple[str, ...], code: str, words: str, tmp_path: Path) -> None:
    done = magus("check", file_with(tmp_path, *lines))

    assert done.exit_code == 1 and code in done.output
    assert words in " ".join(done.output.split())
