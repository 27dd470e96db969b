"""CPU seconds of the tests, in their processes and those they wait for: ``make slowest`` prints them.

Wall time says how busy a machine is. What is collected and imported before the first test is not counted.
"""

import os
from collections import defaultdict
from collections.abc import Generator, Mapping

import pytest
from _pytest.terminal import TerminalReporter

BEGIN = pytest.StashKey[float]()
PROPERTY = "cpu_seconds"
SHOWN = 50
seconds: dict[str, float] = defaultdict(float)
"""By test; of all workers where they are collected."""


def _spent() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[BEGIN] = _spent()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown":
        report.user_properties.append((PROPERTY, _spent() - item.stash[BEGIN]))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, value in report.user_properties:
        if name == PROPERTY and isinstance(value, float):
            seconds[report.nodeid] += value


def _most(taken: Mapping[str, float], shown: int) -> list[tuple[str, float]]:
    return sorted(taken.items(), key=lambda pair: -pair[1])[:shown]


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    folders: dict[str, float] = defaultdict(float)
    for name, taken in seconds.items():
        *_, folder, _ = ["", *name.partition("::")[0].split("/")[:3]]
        folders[folder] += taken
    terminalreporter.section(f"CPU seconds of {len(seconds)} tests: {sum(seconds.values()):.0f}")
    for name, taken in (*_most(folders, len(folders)), *_most(seconds, SHOWN)):
        terminalreporter.write_line(f"{taken:7.2f} {name}")
