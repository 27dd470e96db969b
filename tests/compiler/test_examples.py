from pathlib import Path

import pytest

from magus.compiler import compile_file
from magus.compiler.ir import Pattern
from magus.examples import NAMES, TEMPLATES, path


def test_all_examples_are_listed() -> None:
    assert {file.stem for file in Path(path(NAMES[0])).parent.glob("*.mgs")} == set(NAMES)


@pytest.mark.parametrize("name", [*NAMES, *TEMPLATES])
def test_examples_compile_without_a_warning(name: str) -> None:
    compiled = compile_file(path(name))
    assert compiled.workloads and not compiled.warnings
    assert compiled.scenario().case.shape.about


def test_the_main_example() -> None:
    scenario = compile_file(path("llama70b_tp8_mi300x")).scenario("mlp_up").case
    gemm = scenario.shape.gemm
    assert gemm is not None and (gemm.m, gemm.n, gemm.k) == (8192, 3584, 8192)
    assert scenario.shape.pattern is Pattern.AG_GEMM
    assert scenario.num_ranks == 8 and scenario.system.fabric.topology.name == "full_mesh"


def test_all_gather_moves_8_mib_per_rank() -> None:
    moved = compile_file(path("all_gather_h100")).scenario().case.shape.moved
    assert moved is not None and moved.num_bytes == 8 * (8 << 20)


def test_an_unknown_example() -> None:
    with pytest.raises(ValueError, match="there is no example"):
        path("../pipeline")
