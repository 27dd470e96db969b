"""Constants are written as people write them, and fits recover what made the times, within bounds and order."""

from fractions import Fraction

import numpy as np
import pytest

from magus.advisor.measured.calibrate.fitting import Constant, ConstantUnit, Floats, fit, put_all
from magus.advisor.measured.calibrate.parts import CONSTANTS
from tests.helpers.scenarios.scenarios import h100

START = Constant("gemm.start", ("gemm", "start_ticks"), ConstantUnit.TIME, 0.1, 20)
STEP = Constant("gemm.k_step", ("gemm", "k_step_ticks"), ConstantUnit.TIME, 0.005, 2)
RATE = Constant("gemm.split_bandwidth", ("gemm", "split_bytes_per_s"), ConstantUnit.RATE, 50, 50_000)
SHARE = Constant("gemm.mma", ("gemm", "mma_fraction"), ConstantUnit.SHARE, 0.02, 1)
NUMBER = Constant("gemm.exponent", ("gemm", "exponent"), ConstantUnit.NUMBER, 1.1, 12)
PLAIN = Constant("gemm.quantisation", ("gemm", "quantisation"), ConstantUnit.SHARE, 0, 1, plain=True)
SIZE = Constant("collectives.simple_from", ("collectives", "simple_from_bytes"), ConstantUnit.SIZE, 1, 1 << 40)


@pytest.mark.parametrize(
    ("constant", "value", "text", "exact"),
    [
        (START, 2.11649, "2.116 us", Fraction(2116, 1000)),
        (START, 0.0340001, "34 ns", Fraction(34, 1000)),
        (START, 12.0, "12 us", Fraction(12)),
        (RATE, 808.1234, "808.1 GB/s", Fraction(8081, 10)),
        (RATE, 9580.4, "9.58 TB/s", Fraction(9580)),
        (SHARE, 0.80149, "80.1 %", Fraction(801, 1000)),
        (NUMBER, 2.96789, "2.97", Fraction(297, 100)),
        (PLAIN, 4.5e-10, "0.0 %", Fraction(0)),
        (PLAIN, 0.0341, "3.4 %", Fraction(34, 1000)),
        (SIZE, 3 << 20, "3 MiB", Fraction(3 << 20)),
        (SIZE, 1000, "1000 B", Fraction(1000)),
    ],
)
def test_a_constant_is_written_in_few_digits_and_read_back_exactly(
    constant: Constant, value: float, text: str, exact: Fraction
) -> None:
    assert constant.written(value) == text
    assert constant.rounded(value) == exact


def test_every_gemm_constant_is_put_where_it_is_read() -> None:
    for constant in CONSTANTS:
        value = constant.rounded(constant.of(h100()) * 0.9)

        assert constant.of(constant.put(h100(), value)) == pytest.approx(float(value), rel=1e-9)


SIZES = np.geomspace(1, 1e5, 40)


def line(values: Floats) -> Floats:
    """A start, and a rate in GB/s."""
    times: Floats = np.log(values[0] + SIZES / values[1])
    return times


def test_a_fit_recovers_the_constants_despite_wild_rows() -> None:
    measured = np.exp(line(np.array([3.0, 400.0])))
    measured[[5, 20]] *= 10

    start, rate = fit((START, RATE), [[1.0, 1000.0]], line, measured)

    assert float(start.value) == pytest.approx(3, rel=0.02) and float(rate.value) == pytest.approx(400, rel=0.02)
    assert not start.weak and not rate.weak
    assert put_all(h100(), (start, rate)).gemm.start_ticks == start.value * 10**8


def test_a_constant_that_no_row_speaks_of_stays_and_is_called_weak() -> None:
    measured = np.exp(line(np.array([3.0, 400.0])))

    found = fit((START, RATE, STEP), [[1.0, 1000.0, 0.1]], lambda values: line(values[:2]), measured)

    assert found[2].value == Fraction(1, 10)
    assert found[2].weak and found[2].relative_error == np.inf
    assert not found[0].weak and not found[1].weak


def test_a_constant_at_its_bound_says_so() -> None:
    start, rate = fit((START, RATE), [[1.0, 1000.0]], line, np.exp(line(np.array([100.0, 400.0]))))

    assert start.at_bound and start.weak and float(start.value) <= 20
    assert not rate.at_bound


def test_constants_keep_their_order() -> None:
    def two(values: Floats) -> Floats:
        times: Floats = np.log(np.concatenate([SIZES / values[0], SIZES / values[1]]))
        return times

    found = fit((RATE, RATE), [[200.0, 400.0]], two, np.exp(two(np.array([900.0, 600.0]))), order=[(0, 1)])

    assert found[0].value <= found[1].value
    assert found[0].at_bound and found[1].at_bound
    assert all(590 <= float(each.value) <= 910 for each in found)  # between the two that made the times


def test_the_best_of_several_starts_counts() -> None:
    measured = np.exp(line(np.array([3.0, 400.0])))

    once, more = (fit((START, RATE), starts, line, measured) for starts in ([[1, 1000]], [[1, 1000], [5, 100]]))

    assert [each.text for each in once] == [each.text for each in more]
    assert [each.before for each in more] == [1, 1000]
