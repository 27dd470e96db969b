"""Text for a terminal: nothing is wider than it is, nothing is lost."""

import pytest

from magus.simcore import Cause, CriticalOp
from magus.simcore.program.program import OpKind
from magus.tui.text.render import critical_lines, table
from magus.tui.text.wrap import columns

HEAD = ("", "schedule", "pred us", "sim us", "gain")


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_a_table_with_room_has_a_line_for_each_row() -> None:
    rows = [HEAD, ("*", "ring(chunks=4)", "1.0", "2.0", "1.00x"), (" ", "serial()", "10.0", "-", "0.50x")]

    assert table(rows) == [
        "  schedule       pred us sim us  gain",
        "* ring(chunks=4)     1.0    2.0 1.00x",
        "  serial()          10.0      - 0.50x",
    ]


def test_a_long_name_stands_above_its_numbers() -> None:
    name = "serial(engine=sm(32), algorithm=hierarchical, transfer=get, protocol=ll128)"
    lines = table([HEAD, ("*", name, "1.0", "2.0", "1.00x"), (" ", "ring()", "3.0", "4.0", "0.50x")])

    assert all(len(line) <= columns() for line in lines)
    assert lines[1] == f"* {name}"
    assert lines[2].split() == ["1.0", "2.0", "1.00x"]
    assert lines[2].rindex("1.00x") == lines[0].rindex("gain") - 1 == lines[3].rindex("0.50x")


def test_what_a_step_waited_for_goes_on_below() -> None:
    where = "link nic-out 0[2], the second of four rails of the node"
    op = CriticalOp(0, "x1", 0, OpKind.TRANSFER, Cause.START, "", 0, 0, 10**8, where, 10**8)
    head, first, *rest = critical_lines([op])

    assert "Critical path" in head and all(len(line) <= columns() for line in (head, first, *rest))
    assert rest and {len(line) - len(line.lstrip()) for line in rest} == {30}
    assert where in " ".join(line.strip() for line in (first, *rest))
