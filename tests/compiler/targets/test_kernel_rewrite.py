"""Kernels of users, rewritten: what becomes of the text, and what is refused with which reason."""

import ast
import os

import pytest

from magus.compiler.codes import Code
from magus.compiler.ir import Pattern
from magus.compiler.planning.build import ScheduleError
from magus.compiler.resolve.schedules.from_text import resolve_schedule
from magus.compiler.targets.kernel_rewrite import PARAMETERS, rewrite_kernel
from magus.compiler.targets.tile_tables import Group, check_whole_tiles
from magus.compiler.targets.triton import triton_text
from magus.compiler.text.diagnostics import CompileError, Source
from tests.helpers import paths
from tests.helpers.scenarios.drawn import SYSTEMS, scenario_of
from tests.helpers.targets.rewritten import FOLDER, KERNELS

GOLDEN = paths.GOLDEN / "triton"
BY_HOST = (FOLDER / "by_host.py").read_text()
COUNTED = (FOLDER / "counted.py").read_text()
DESCRIBED = (FOLDER / "described.py").read_text()
GROUPED = (FOLDER / "grouped.py").read_text()
GUARDED = (FOLDER / "guarded.py").read_text()
GRID = (FOLDER / "grid.py").read_text()
PERSISTENT = (FOLDER / "persistent.py").read_text()


@pytest.mark.parametrize("name", KERNELS)
def test_the_rewritten_kernel_is_the_one_that_was_looked_at(name: str) -> None:
    made = rewrite_kernel(Source(f"{name}.py", (FOLDER / f"{name}.py").read_text()))
    path = GOLDEN / f"kernel_{name}.txt"
    if os.environ.get("MAGUS_UPDATE_GOLDEN"):
        path.write_text(made.text + "\n", encoding="utf-8")

    assert made.name == KERNELS[name][0]
    assert made.text + "\n" == path.read_text(encoding="utf-8")


def test_of_the_file_stays_what_the_kernel_needs() -> None:
    made = rewrite_kernel(Source("grouped.py", GROUPED))
    body = ast.parse(made.text).body

    assert [each.name for each in body if isinstance(each, ast.FunctionDef)] == [
        "leaky",
        "grouped_gemm_kernel_tile",
        "grouped_gemm_kernel",
    ]
    assert "SLOPE = " in made.text and "torch" not in made.text and "place_of" not in made.text


def test_names_of_a_function_are_none_of_the_file() -> None:
    """A helper's parameter or variable is called as what a script has below, which launches other kernels."""
    helped = COUNTED.replace(
        "@triton.jit", "def told(grid, kernel, args):\n    M = args\n    return {'name': M}\n\n\n@triton.jit"
    )
    named = helped.replace("@triton.jit\n", "@triton.jit(launch_metadata=told)\n")
    other = COUNTED.replace("counted_kernel", "other_kernel").partition("@triton.jit")[2]
    script = "\n\nif __name__ == '__main__':\n    M = args = SIZE\n    other_kernel[(1,)](args)\n"
    made = rewrite_kernel(Source("f.py", f"{named}\n\nSIZE = 8\n\n\n@triton.jit{other}{script}"), name="counted_kernel")

    assert "def told(" in made.text
    assert "other_kernel" not in made.text and "__main__" not in made.text and "SIZE" not in made.text


def test_the_file_calls_the_kernel_by_its_own_names() -> None:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[1], 4, 128, 160, 256)
    kernel = rewrite_kernel(Source("counted.py", COUNTED))
    text = triton_text(scenario, resolve_schedule(scenario, "hetero_fused_1d(chunks=8)"), kernel=kernel)

    assert '#     check_whole_tiles(GROUPS[rank], BM, BN, *BUFFERS["c"])' in text
    assert "#     counted_kernel[(PROGRAMS,)](tiles, starts, waits, flags, epoch, ...)" in text
    assert "plan_gemm" not in text
    compile(text, "plan.py", "exec")


def test_a_plan_that_cuts_the_inner_dimension_is_refused() -> None:
    scenario = scenario_of(Pattern.AG_GEMM, SYSTEMS[1], 4, 128, 160, 256)
    with pytest.raises(ScheduleError) as caught:
        triton_text(
            scenario,
            resolve_schedule(scenario, "uniform_fused_2d(chunks=16)"),
            kernel=rewrite_kernel(Source("counted.py", COUNTED)),
        )

    assert caught.value.rejection.code is Code.MGS541
    assert "adds a slice of the inner dimension" in caught.value.rejection.message


def test_blocks_that_do_not_divide_regions_are_refused() -> None:
    groups = [Group("own", ((0, 20, 0, 40),), (0, 64), (), -1), Group("g0", ((20, 50, 0, 40),), (0, 64), (), -1)]

    check_whole_tiles(groups, 10, 16, 50, 40)
    check_whole_tiles(groups, 20, 16, 50, 40)
    with pytest.raises(ValueError, match="tiles of 16 x 16 do not divide rows 0:20, columns 0:40 of own"):
        check_whole_tiles(groups, 16, 16, 50, 40)


REFUSED = {
    "no Python": ("def (", "the file is no Python"),
    "deep": ("(" * 5000, "the file is no Python"),
    "no kernel": ("x = 1\n", "no function with @triton.jit calls tl.dot"),
    "two kernels": (COUNTED + GRID, "several kernels call tl.dot: counted_kernel, grid_kernel"),
    "tuned": (
        COUNTED.replace("@triton.jit\n", "@triton.autotune(configs=[], key=[])\n@triton.jit\n"),
        "autotuning has no configuration",
    ),
    "split K": (COUNTED.replace("tl.store(", "tl.atomic_add("), "the kernel counts or adds atomically"),
    "rows that a tensor names": (
        BY_HOST.replace("a_desc.load([at_m, at_k])", "a_desc.gather(tl.arange(0, BM), at_k)"),
        "a_desc reads or writes rows that a tensor names",
    ),
    "rows that a tensor names, stored": (
        DESCRIBED.replace("out.store([m * BM, n * BN], acc", "out.scatter(acc").replace(
            "element_ty))", "element_ty), m, n)"
        ),
        "out reads or writes rows that a tensor names",
    ),
    "descriptors of old": (
        BY_HOST.replace("a_desc.load(", "tl._experimental_descriptor_load(a_desc, "),
        "_experimental_descriptor_load is of another version of Triton",
    ),
    "a descriptor of the output turned round": (
        BY_HOST.replace("c_desc.store([at_m, at_n], acc)", "c_desc.store([at_n, at_m], acc.T)"),
        "the tile is stored transposed",
    ),
    "a descriptor stored elsewhere": (
        BY_HOST.replace("c_desc.store([at_m", "c_desc.store([at_m + BM"),
        "the rows of a stored block do not begin at m * BM",
    ),
    "a descriptor whose rows lie the number of rows apart": (
        DESCRIBED.replace("strides=[N, 1], block_shape=[BM, BN]", "strides=[M, 1], block_shape=[BM, BN]"),
        "rows of the output lie M apart, which is the number of rows",
    ),
    "early return": (
        GROUPED.replace("    tl.assume(pid_m >= 0)", "    if pid_m > 9:\n        return"),
        "a tile may end early",
    ),
    "a return before the last tile is whole": (
        GUARDED.replace("n * BN >= N", "n * BN + BN > N"),
        "a tile may end early",
    ),
    "a return of what memory says": (
        GUARDED.replace("m * BM >= M", "m * BM >= tl.load(lda)"),
        "which tiles are computed is read from lda",
    ),
    "a return with something to do before": (
        GUARDED.replace("        return", "        tl.store(c, 0.0)\n        return"),
        "a tile may end early",
    ),
    "no kernel of that kind": (COUNTED.replace("tl.dot(", "dot_of("), "no function with @triton.jit calls tl.dot"),
    "skipped tiles": (
        COUNTED.replace("        rows = BM", "        if pid_m > 9:\n            continue\n        rows = BM"),
        "a tile may end early",
    ),
    "no accumulator": (COUNTED.replace("tl.zeros((BM, BN), dtype=tl.float32)", "0.0"), "no accumulator tells the size"),
    "square tiles": (COUNTED.replace("BN", "BM"), "the size of a tile is not clear from (BM, BM)"),
    "no index": (COUNTED.replace("BM * pid_m", "BM * (pid_m + 0)"), "nothing is multiplied by BM"),
    "two indices": (
        COUNTED.replace("inner = k", "inner = across * BM - across * BM + k"),
        "multiplied by BM, and not one",
    ),
    "batches": (
        GROUPED.replace("offs_k = tl.arange", "x_ptr += tl.program_id(1) * M * K\n    offs_k = tl.arange"),
        "the number of the program says more",
    ),
    "index computed twice": (
        PERSISTENT.replace(
            "        tl.store(", "        m, n = place_of(tile + 1, tiles_n, GROUP_M, tiles_m)\n        tl.store("
        ),
        "m or n is read before it is computed again",
    ),
    "a number of the first search": (
        COUNTED.replace("tile += ", "first = pid_m * 2\n        pid_m = pid_m + 1\n        tile += ").replace(
            "cols[None, :], acc", "cols[None, :] + first, acc"
        ),
        "pid_m or pid_n is read before it is computed again",
    ),
    "what finds a tile finds more": (
        PERSISTENT.replace("m, n = place_of", "m, n, other = place_of").replace("step * BK", "other + step * BK"),
        "what finds a tile also finds other",
    ),
    "carried": (
        PERSISTENT.replace("        rows, cols =", "        A += 1\n        rows, cols ="),
        "A goes from one tile to the next",
    ),
    "index from memory": (
        COUNTED.replace("pid_m = tile // across", "pid_m = tl.load(a + tile)"),
        "pid_m or pid_n is assigned in a way that is not followed",
    ),
    "stored outside": (
        PERSISTENT + "    tl.store(C, 0.0)\n",
        "a part of a tile is outside the loop through the tiles",
    ),
    "index from outside": (
        GROUPED.replace("    pid_n = (program % in_group) // size\n", "").replace("M, N, K,", "M, N, K, pid_n,", 1),
        "pid_n is not found in the kernel",
    ),
    "helpers that know the program": (
        GROUPED.replace("SLOPE * x)", "SLOPE * x * tl.program_id(0))"),
        "the number of the program says more",
    ),
    "helpers that add atomically": (
        GROUPED.replace("    return tl.where", "    tl.atomic_add(x, 1)\n    return tl.where"),
        "the kernel counts or adds atomically",
    ),
    "jit twice": (
        COUNTED.replace("@triton.jit\n", "@triton.jit\n@triton.jit\n"),
        "counted_kernel has a decorator twice",
    ),
    "our names": (COUNTED.replace("across", "magus_across"), "magus_across is a name that Magus gives"),
    "parameters with stars": (COUNTED.replace("ORDER: tl.constexpr", "*ORDER"), "counted_kernel has parameters with *"),
    "numbered parameters": (
        PERSISTENT.replace("debug=False", "do_not_specialize=[3]"),
        "[3] counts parameters, and there will be more",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_recognised_is_refused_with_a_place(name: str) -> None:
    text, message = REFUSED[name]
    assert text not in (BY_HOST, COUNTED, DESCRIBED, GROUPED, GUARDED, PERSISTENT)
    with pytest.raises(CompileError) as caught:
        rewrite_kernel(Source("kernel.py", text))

    (found,) = caught.value.diagnostics
    assert found.code is Code.MGS542 and message in found.message
    assert found.span.location.line >= 1


def test_parameters_of_the_kernel_stay_behind_those_of_the_tables() -> None:
    for name, (kernel, _) in KERNELS.items():
        text = (FOLDER / f"{name}.py").read_text()
        before, after = (
            next(
                each for each in ast.walk(ast.parse(part)) if isinstance(each, ast.FunctionDef) and each.name == kernel
            )
            for part in (text, rewrite_kernel(Source("kernel.py", text)).text)
        )
        assert [each.arg for each in after.args.args] == [*PARAMETERS, *(each.arg for each in before.args.args)]
        assert len(after.args.defaults) == len(before.args.defaults)
    assert KERNELS


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_without_some_of_its_lines_is_refused_or_still_python(name: str) -> None:
    lines = (FOLDER / f"{name}.py").read_text().splitlines(keepends=True)
    for first in range(0, len(lines), 6):
        for count in (1, 4):
            try:
                made = rewrite_kernel(Source("kernel.py", "".join(lines[:first] + lines[first + count :])))
            except CompileError as error:
                assert error.diagnostics[0].code is Code.MGS542
            else:
                compile(made.text, "kernel.py", "exec")
    assert lines


def test_of_several_kernels_the_one_that_is_named() -> None:
    source = Source("kernels.py", COUNTED + GRID)
    for name in ("counted_kernel", "grid_kernel"):
        made = rewrite_kernel(source, name=name)
        assert made.name == name
        assert all(each == name for each in ("counted_kernel", "grid_kernel") if each in made.text)

    with pytest.raises(CompileError, match=r"no kernel other calls tl\.dot"):
        rewrite_kernel(source, name="other")


@pytest.mark.parametrize(
    "guard", ["m * BM >= M", "M <= m * BM", "tl.cdiv(N, BN) <= n", "m >= tl.cdiv(M, BM) or n * BN >= N"]
)
def test_a_return_beyond_the_end_stays_as_a_condition(guard: str) -> None:
    made = rewrite_kernel(Source("kernel.py", GUARDED.replace("m * BM >= M or n * BN >= N", guard)))

    assert f"if not {guard}:" in made.text or f"if not ({guard}):" in made.text
    assert "return" not in made.text


def test_descriptors_read_behind_the_flags_and_store_before_them() -> None:
    """From sm_90 on they are ordered by a fence alone, which pointers have no need of."""
    for text in (BY_HOST, DESCRIBED):
        lines = [line.strip() for line in rewrite_kernel(Source("kernel.py", text)).text.splitlines()]
        fences = [place for place, line in enumerate(lines) if line == "magus_order_descriptors()"]
        polls = [place for place, line in enumerate(lines) if "sem='acquire'" in line]
        counts = [place for place, line in enumerate(lines) if "sem='release'" in line]
        finds = [place for place, line in enumerate(lines) if line.startswith("m = tl.load(magus_tile)")]
        assert polls < fences[:1] < finds < fences[1:] < counts
    assert "magus_order" not in rewrite_kernel(Source("kernel.py", COUNTED)).text


def test_a_search_in_several_steps_goes_as_a_whole() -> None:
    steps = "tile += tl.num_programs(0)\n        half = pid_m * 2\n        pid_m = half // 2\n"
    made = rewrite_kernel(Source("kernel.py", COUNTED.replace("tile += tl.num_programs(0)\n", steps)))

    assert "half" not in made.text
