"""Where a kernel stores its tiles: as the plan expects it, or refused; and what it reads by row beside that."""

import pytest

from magus.compiler.codes import Code
from magus.compiler.ir import Pattern
from magus.compiler.targets.kernel_rewrite import rewrite_kernel
from magus.compiler.text.diagnostics import CompileError, Severity, Source
from tests.helpers.targets.numpy_triton import NumpyWorld
from tests.helpers.targets.rewritten import FOLDER

GROUPED = (FOLDER / "grouped.py").read_text()
TUNED = (FOLDER / "tuned.py").read_text()
TWICE = (FOLDER / "twice.py").read_text()
PLACE = "y_ptr + stride_ym * offs_ym[:, None] + stride_yn * offs_yn[None, :]"
VALUE = "acc.to(y_ptr.dtype.element_ty)"
MASK = "(offs_ym[:, None] < M) & (offs_yn[None, :] < N)"
TRANSPOSED = "the tile is stored transposed"
ROWS_OF_ACC = "acc = tl.zeros((BLOCK_M, BLOCK_N)"


def stored(place: str = PLACE, value: str = VALUE, mask: str = MASK) -> str:
    return GROUPED.replace(PLACE, place).replace(VALUE, value).replace(MASK, mask)


REFUSED = {
    **{
        f"value {value}": (stored(value=value), TRANSPOSED)
        for value in (
            *("acc.T", "tl.trans(acc)", "tl.trans(acc, 1, 0)", "tl.trans(acc, (1, 0))", "acc.trans()"),
            *("tl.permute(acc, (1, 0))", "acc.permute(1, 0)", "tl.trans(acc).to(y_ptr.dtype.element_ty)"),
        )
    },
    "accumulator": (
        stored(value="acc.T")
        .replace(ROWS_OF_ACC, "acc = tl.zeros((BLOCK_N, BLOCK_M)")
        .replace("dot(x, w,", "dot(w.T, x.T,"),
        TRANSPOSED,
    ),
    "accumulator and store": (
        stored("y_ptr + stride_yn * offs_yn[:, None] + stride_ym * offs_ym[None, :]", "acc")
        .replace(ROWS_OF_ACC, "acc = tl.zeros((BLOCK_N, BLOCK_M)")
        .replace("dot(x, w,", "dot(w.T, x.T,"),
        "rows of the output lie stride_yn apart and columns stride_ym",
    ),
    "offsets": (stored("y_ptr + stride_ym * offs_yn[:, None] + stride_yn * offs_ym[None, :]"), TRANSPOSED),
    "axes": (stored("y_ptr + stride_ym * offs_ym[None, :] + stride_yn * offs_yn[:, None]"), TRANSPOSED),
    "axes and value": (
        stored("y_ptr + stride_ym * offs_ym[None, :] + stride_yn * offs_yn[:, None]", "acc.T"),
        TRANSPOSED,
    ),
    "strides": (
        stored("y_ptr + stride_yn * offs_ym[:, None] + stride_ym * offs_yn[None, :]"),
        "rows of the output lie stride_yn apart and columns stride_ym",
    ),
    "a row as long as there are rows": (
        stored("y_ptr + M * offs_ym[:, None] + offs_yn[None, :]"),
        "rows of the output lie M apart, which is the number of rows",
    ),
    "by columns": (
        stored("y_ptr + offs_ym[:, None] + stride_yn * offs_yn[None, :]"),
        "rows of the output lie 1 apart and columns stride_yn",
    ),
    "one stride": (
        stored("y_ptr + stride_ym * offs_ym[:, None] + stride_ym * offs_yn[None, :]"),
        "rows of the output lie stride_ym apart and columns stride_ym",
    ),
    "masks": (
        stored(mask="(offs_ym[:, None] < N) & (offs_yn[None, :] < M)"),
        "rows and columns are both compared with M",
    ),
    "a mask": (stored(mask="(offs_ym[:, None] < N)"), "rows and columns are both compared with N"),
    "another place": (
        stored("y_ptr + stride_ym * (offs_ym + pid_m)[:, None] + stride_yn * offs_yn[None, :]"),
        "the rows of a stored tile do not begin at pid_m * BLOCK_M",
    ),
    "half a tile": (
        stored("y_ptr + stride_ym * offs_ym[:, None] + stride_yn * tl.arange(0, BLOCK_N // 2)[None, :]", mask="True"),
        "a tile is (BLOCK_M, BLOCK_N), and it stores (BLOCK_M, BLOCK_N // 2)",
    ),
    "another shape": (stored(value="tl.reshape(acc, (BLOCK_N, BLOCK_M))"), "what is stored is not followed"),
    "in a helper": (
        GROUPED.replace("    return tl.where(x >= 0", "    x = tl.trans(x)\n    return tl.where(x >= 0"),
        "what is stored is not followed",
    ),
    "block of columns": (
        TUNED.replace(
            "(m * BM, n * BN), (BM, BN), (1, 0))\n    tl.store", "(n * BN, m * BM), (BN, BM), (1, 0))\n    tl.store"
        ),
        TRANSPOSED,
    ),
    "offsets of a block": (
        TUNED.replace("(m * BM, n * BN), (BM, BN)", "(n * BN, m * BM), (BM, BN)"),
        "the rows of a stored block do not begin at m * BM",
    ),
    "strides of a block": (TUNED.replace("(M, N), (ldc, 1)", "(M, N), (1, ldc)"), "rows of the output lie 1 apart"),
    "shape of a block": (TUNED.replace("(M, N), (ldc, 1)", "(N, M), (ldc, 1)"), "rows and columns are both compared"),
    "rows found in memory": (
        GROUPED.replace("x_ptr + offs_m[:, None]", "x_ptr + tl.load(w_ptr + offs_m)[:, None]"),
        "x_ptr is read where w_ptr says",
    ),
    "found again elsewhere": (TWICE.replace("find(stored, in_group", "find(stored + 1, in_group"), "multiplied by BM"),
    "found a step later": (TWICE.replace("start - SMS", "start"), "m and m_out are multiplied by BM"),
    "found by other steps": (TWICE.replace("stored += SMS", "stored += 1"), "m and m_out are multiplied by BM"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_tile_that_is_stored_elsewhere_is_refused(name: str) -> None:
    text, message = REFUSED[name]
    assert text not in (GROUPED, TUNED, TWICE)
    with pytest.raises(CompileError) as caught:
        rewrite_kernel(Source("kernel.py", text))

    (found,) = caught.value.diagnostics
    assert found.code is Code.MGS542 and message in found.message and found.hint


@pytest.mark.parametrize(
    "text",
    [
        stored("y_ptr + stride_ym * tl.expand_dims(offs_ym, 1) + stride_yn * tl.expand_dims(offs_yn, 0)"),
        stored("y_ptr + (stride_ym * offs_ym.to(tl.int64))[:, None] + offs_yn[None, :]"),
        stored(value="tl.trans(tl.trans(acc))"),
        stored("y_ptr + tl.broadcast_to(offs_yn[None, :] + N * offs_ym[:, None], (BLOCK_M, BLOCK_N))"),
        stored(value="acc * tl.broadcast_to((1 + 0 * tl.arange(0, 1))[:, None], (BLOCK_M, 1))"),
        GROUPED.replace("    y_ptrs = ", "    y_ptr += 0\n    y_ptrs = "),
    ],
)
def test_other_ways_to_say_the_same_place(text: str) -> None:
    assert text != GROUPED
    found = NumpyWorld("grouped", Pattern.AG_GEMM, text)

    found.run_kernels()

    assert found.exact and found.once


WHILE = TWICE.replace(
    "    for tile in tl.range(start, tiles_m * tiles_n, SMS, flatten=True):",
    "    tile = start\n    while tile < tiles_m * tiles_n:",
)
SECOND = "        stored += SMS\n        m_out, n_out = find(stored,"


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "text",
    [
        TWICE.replace("stored += SMS", "stored = stored + SMS"),
        TWICE.replace("m_out", "m").replace("n_out", "n"),
        TWICE.replace(
            "tl.range(start, tiles_m * tiles_n, SMS, flatten=True)", "range(tl.cdiv(tiles_m * tiles_n - start, SMS))"
        ).replace("        m, n = find(tile", "        m, n = find(start + tile * SMS"),
        WHILE + "        tile += SMS\n",
        WHILE.replace(SECOND, "        m_out, n_out = find(tile,").replace("    stored = start - SMS\n", "")
        + "        tile += SMS\n",
        WHILE.replace(SECOND, "        tile += SMS\n        m_out, n_out = find(tile - SMS,").replace(
            "    stored = start - SMS\n", ""
        ),
    ],
)
def test_a_tile_that_is_provably_found_again_is_found_once(text: str) -> None:
    assert text != TWICE

    made = rewrite_kernel(Source("kernel.py", text)).text

    assert "find(" not in made and "stored" not in made and "m_out" not in made and "m * BM" in made
    found = NumpyWorld("twice", Pattern.AG_GEMM, text)
    found.run_kernels()
    assert found.exact and found.once


BY_ROW = {
    "acc *= tl.load(s_ptr + offs_m)[:, None]": ["s_ptr"],
    "acc += tl.load(s_ptr + offs_m, mask=offs_m < M)[:, None] * tl.load(t_ptr + offs_n)[None, :]": ["s_ptr"],
    "acc += tl.load(s_ptr + offs_m[:, None] * N + offs_n[None, :])": ["s_ptr"],
    "acc += tl.load(s_ptr + offs_n)[None, :]": [],
}


@pytest.mark.parametrize("line", BY_ROW)
def test_what_is_read_by_row_beside_the_matrix_is_named(line: str) -> None:
    text = GROUPED.replace("    y_ptr,\n", "    y_ptr,\n    s_ptr,\n    t_ptr,\n").replace(
        '    if ACTIVATION == "leaky":\n', f'    {line}\n    if ACTIVATION == "leaky":\n'
    )

    found = rewrite_kernel(Source("kernel.py", text)).by_row

    assert [each.message.split()[0] for each in found] == BY_ROW[line]
    for each in found:
        assert (each.code, each.severity) == (Code.MGS560, Severity.WARNING) and each.span.location.line > 1
