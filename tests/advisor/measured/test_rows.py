"""Tables of measurements: read whole or in part, every row left out named, hostile files refused."""

import gzip
import os
from pathlib import Path

import pytest

from magus.advisor.measured.tables import csv_rows as rows_module
from magus.advisor.measured.tables.csv_rows import MeasuredError, MissingTable, read_rows

TABLE = """# a comment
gpu,m,time_us,note

H100,64,2.5,"one, two"
# another
H100,128,3.5,
"""


def table(tmp_path: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = tmp_path / name
    raw = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_table_is_read_without_its_comments(tmp_path: Path, name: str) -> None:
    found = read_rows(table(tmp_path, TABLE, name), ("gpu",), ("m", "time_us"))

    assert found.skipped == ()
    assert found.rows == (
        {"gpu": "H100", "m": "64", "time_us": "2.5", "note": "one, two"},
        {"gpu": "H100", "m": "128", "time_us": "3.5", "note": ""},
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("H100,64", "2 fields where there are 4 columns"),
        ("H100,64,1,2,3", "5 fields where there are 4 columns"),
        (",64,1,", "no gpu"),
        ("H100,many,1,", "m is 'many', not a number above zero"),
        ("H100,64,nan,", "time_us is 'nan', not a number above zero"),
        ("H100,64,1e999,", "time_us is '1e999', not a number above zero"),
        ("H100,64,0,", "time_us is '0', not a number above zero"),
        ("H100,64,-1,", "time_us is '-1', not a number above zero"),
        ("H100,6_4,1,", "m is '6_4', not a number above zero"),
        ("H100,٦٤,1,", "m is '٦٤', not a number above zero"),
        ("H100,__import__('os'),1,", "m is \"__import__('os')\", not a number above zero"),
        ('H100,64,1,"open', "a quote that does not fit"),
        ("H100,64,1,\x1b[2J", "characters that do not print"),
        ("H100,64,1,\0", "characters that do not print"),
        ("H100,64,1," + "x" * 5000, "more than 4096 characters"),
    ],
)
def test_a_malformed_row_is_skipped_and_named(tmp_path: Path, line: str, reason: str) -> None:
    found = read_rows(table(tmp_path, f"gpu,m,time_us,note\n{line}\nH100,8,1,\n"), ("gpu",), ("m", "time_us"))

    assert [row["m"] for row in found.rows] == ["8"]
    assert found.skipped == (f"t.csv:2: {reason}",)


def test_bytes_that_are_not_utf8_cost_their_row_only(tmp_path: Path) -> None:
    found = read_rows(table(tmp_path, b"gpu,m\nH\xff,1\nH,2\n"), ("gpu", "m"))

    assert len(found.rows) == 1
    assert found.skipped == ("t.csv:2: text that is not UTF-8",)


def test_a_gzip_file_that_ends_early_gives_the_rows_before(tmp_path: Path) -> None:
    whole = "gpu,m\n" + "".join(f"G{number * 7919 % 100_003},{number}\n" for number in range(40_000))
    path = table(tmp_path, whole, "t.csv.gz")
    path.write_bytes(path.read_bytes()[:-1000])

    found = read_rows(path, ("gpu",), ("m",))

    assert 10_000 < len(found.rows) < 40_000
    assert found.rows[-1]["gpu"] == f"G{int(found.rows[-1]['m']) * 7919 % 100_003}"
    assert found.skipped[-1].startswith("t.csv.gz: the compressed data end early")


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ("gpu,m\nH,1\n", "t.csv", "no column time_us; columns are gpu, m"),
        ("", "t.csv", "empty"),
        ("# only a comment\n", "t.csv", "empty"),
        ("gpu,gpu,time_us\nH,1,1\n", "t.csv", "two columns have the same name"),
        ("gpu,time_us,time_ms\nH,1,2\n", "t.csv", "time_us and time_ms are one time in two units: leave time_us alone"),
        ("x" * 10_000, "t.csv", "the line of column names has more than 4096 characters"),
    ],
)
def test_what_is_no_table_is_an_error(tmp_path: Path, text: str, name: str, says: str) -> None:
    with pytest.raises(MeasuredError, match=says):
        read_rows(table(tmp_path, text, name), ("gpu",), ("time_us",))


def test_a_missing_file_and_a_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(MissingTable, match="no such file"):
        read_rows(tmp_path / "none.csv", ())
    with pytest.raises(MeasuredError, match="not a file"):
        read_rows(tmp_path, ())


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")

    with pytest.raises(MeasuredError, match="not a file"):
        read_rows(tmp_path / "pipe.csv", ())


def test_what_is_not_gzip_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_text("gpu,m\n")

    with pytest.raises(MeasuredError, match="not a gzip file"):
        read_rows(tmp_path / "t.csv.gz", ())


def test_a_file_that_grows_without_end_is_refused(tmp_path: Path) -> None:
    bomb = table(tmp_path, b"gpu\n" + b"x" * (65 << 20), "t.csv.gz")

    assert bomb.stat().st_size < 100_000
    with pytest.raises(MeasuredError, match="more than 64 MiB of text"):
        read_rows(bomb, ("gpu",))


def test_too_many_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MAX_ROWS", 2)

    with pytest.raises(MeasuredError, match="more than 2 rows"):
        read_rows(table(tmp_path, "gpu\na\nb\nc\n"), ("gpu",))
