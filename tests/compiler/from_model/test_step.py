"""Training steps of models: the file that is written, and what does not divide."""

import pytest

from magus.compiler import compile_text
from magus.compiler.codes import Code
from magus.compiler.from_model.request import shipped_model
from magus.compiler.from_model.step import StepRequest, step_text
from magus.compiler.ir.step import PipelineKind, handed_on
from magus.compiler.request.request import RequestError


@pytest.mark.parametrize(
    ("name", "gpus", "axes", "layers"),
    [
        ("llama-3.1-8b", 64, {"tp": 8, "dp": 8, "pp": 1}, (32,)),
        ("llama-3.1-405b", 128, {"tp": 8, "dp": 16, "pp": 1}, (126,)),
        ("deepseek-v3", 256, {"dp": 256, "pp": 1, "ep": 64, "edp": 4}, (3, 58)),
        ("qwen3-235b", 64, {"dp": 64, "pp": 1, "ep": 64, "edp": 1}, (94,)),
    ],
)
def test_a_step_has_the_layers_of_its_model(
    name: str, gpus: int, axes: dict[str, int], layers: tuple[int, ...]
) -> None:
    """Layers lie on groups, those without experts first, and their weights are most of the model's parameters."""
    model = shipped_model(name)
    step = compile_text(step_text(model, StepRequest("h100", gpus, gpus * 4, 4096))).step()
    assert step is not None
    assert {axis.name: axis.size for axis in step.system.mesh} == axes
    assert tuple(block.count for block in step.step.blocks) == layers
    counted = 2 * model.vocabulary * model.hidden
    for block in step.step.blocks:
        for part in block.parts:
            held = [
                each for each in part.forward.workload.tensors if each.name.startswith(("w", "s")) and each.rows > 1
            ]
            made = {result for result, _, _ in part.forward.workload.results}
            counted += block.count * sum(each.rows * each.cols for each in held if each.name not in made)
    assert counted == pytest.approx(model.parameters, rel=0.03)


def test_the_batch_is_what_was_asked() -> None:
    """Sequences, their length and the layouts that divide are in the file."""
    text = step_text(shipped_model("llama-3.1-8b"), StepRequest("b200", 16, 48, 8192))
    step = compile_text(text).step()
    assert step is not None and (step.step.sequences, step.step.length) == (48, 8192)
    assert dict(step.explore.settings)["MB"] == ("1", "2", "4")
    assert step.explore.num_layouts == 4 * 5 * 3


def test_long_sequences_lie_on_several_ranks() -> None:
    """Each has 16,384 tokens or more of one; what is asked for is taken."""
    model = shipped_model("llama-3.1-8b")
    step = compile_text(step_text(model, StepRequest("h100", 64, 16, 131072))).step()
    assert step is not None and dict(step.explore.settings)["CP"] == ("1", "2", "4", "8")
    assert len(step.explore.context) == 2
    asked = compile_text(step_text(model, StepRequest("h100", 64, 16, 8192, cp=4))).step()
    assert asked is not None and asked.in_context
    assert {axis.name: axis.size for axis in asked.system.mesh} == {"tp": 8, "cp": 4, "dp": 2, "pp": 1}
    few = compile_text(step_text(model, StepRequest("h100", 8, 16, 65536, cp=2))).step()
    assert few is not None and {axis.name: axis.size for axis in few.system.mesh} == {
        "tp": 4,
        "cp": 2,
        "dp": 1,
        "pp": 1,
    }
    usual = compile_text(step_text(model, StepRequest("h100", 64, 16, 8192))).step()
    assert usual is not None and not usual.in_context


def test_ranks_that_share_sequences_have_experts_too() -> None:
    """Each rank has a fourth of a sequence, and eight ranks share experts: those of two sequences."""
    step = compile_text(step_text(shipped_model("qwen3-30b-a3b"), StepRequest("h100", 32, 16, 65536, cp=4))).step()
    assert step is not None and step.in_context
    (part,) = step.step.blocks[0].parts
    sizes = {axis.name: axis.size for axis in step.system.mesh}
    assert sizes == {"cp": 4, "dp": 8, "pp": 1, "ep": 32, "edp": 1}
    assert part.context is not None and part.context.num_ranks == 4
    assert handed_on(part.forward).rows == 32 * 65536 // 4
    assert step.step.microbatches == 2


@pytest.mark.parametrize(
    ("name", "length", "cp"), [("llama-3.1-8b", 8193, 2), ("llama-3.1-8b", 8192, 3), ("qwen3-235b", 8192, 3)]
)
def test_sequences_that_are_not_shared(name: str, length: int, cp: int) -> None:
    """No two chunks for each rank, ranks that do not divide, the same with experts."""
    with pytest.raises(RequestError) as caught:
        step_text(shipped_model(name), StepRequest("h100", 64, 64, length, cp=cp))
    assert (caught.value.code, caught.value.field) == (Code.MGS304, "cp")


@pytest.mark.parametrize(
    ("gpus", "sequences", "name", "code", "field"),
    [
        (12, 8, "llama-3.1-8b", Code.MGS304, "gpus"),
        (0, 8, "llama-3.1-8b", Code.MGS307, "gpus"),
        (8, 0, "llama-3.1-8b", Code.MGS307, "sequences"),
        (4, 8, "deepseek-v3", Code.MGS304, "gpus"),
    ],
)
def test_what_does_not_divide_is_said(gpus: int, sequences: int, name: str, code: Code, field: str) -> None:
    """Nodes that are not full, no sequences, too few ranks for the experts."""
    with pytest.raises(RequestError) as caught:
        step_text(shipped_model(name), StepRequest("h100", gpus, sequences, 4096))
    assert (caught.value.code, caught.value.field) == (code, field)


@pytest.mark.parametrize(
    ("name", "gpus", "sequences", "pp", "microbatches"), [("llama-3.1-8b", 16, 1, 2, 1), ("qwen3-235b", 64, 16, 4, 1)]
)
def test_few_sequences_are_shared_by_stages(name: str, gpus: int, sequences: int, pp: int, microbatches: int) -> None:
    """Layouts that need more sequences are left out of the comparison, and are not the one that the file has."""
    step = compile_text(step_text(shipped_model(name), StepRequest("h100", gpus, sequences, 4096))).step()
    assert step is not None and step.step.microbatches == microbatches
    assert {axis.name: axis.size for axis in step.system.mesh}["pp"] == pp
    assert "1" in dict(step.explore.settings)["PP"]
    with pytest.raises(RequestError, match="microbatches"):
        step_text(shipped_model("qwen3-235b"), StepRequest("h100", 64, 2, 4096))


def test_models_with_experts_compare_a_dual_pipeline() -> None:
    """Their rows travel under kernels of the other direction; stages divide by the smallest group of experts."""
    kinds = {}
    for name in ("qwen3-235b", "llama-3.1-8b"):
        step = compile_text(step_text(shipped_model(name), StepRequest("h100", 64, 256, 4096))).step()
        assert step is not None
        kinds[name] = PipelineKind.DUAL in {each.kind for each in step.explore.pipelines}
        assert dict(step.explore.settings)["PP"][:4] == ("1", "2", "4", "8")
    assert kinds == {"qwen3-235b": True, "llama-3.1-8b": False}
