"""CPU seconds of the tests, in their processes and those they wait for: ``make slowest`` prints them.

Wall time says how busy a machine is. What is collected and imported before the first test is not counted.
"""

import os
from collections import Counter
from collections.abc import Generator

import pytest
from _pytest.terminal import TerminalReporter

BEGIN = pytest.StashKey[float]()
PROPERTY = "cpu_seconds"
SHOWN = 50
seconds: Counter[str] = Counter()


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
    seconds[report.nodeid] += dict(report.user_properties).get(PROPERTY, 0.0)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    folders: Counter[str] = Counter()
    for name, taken in seconds.items():
        *_, folder, _ = ["", *name.partition("::")[0].split("/")[:3]]
        folders[folder] += taken
    terminalreporter.section(f"CPU seconds of {len(seconds)} tests: {seconds.total():.0f}")
    for name, taken in (*folders.most_common(8), *seconds.most_common(SHOWN)):
        terminalreporter.write_line(f"{taken:7.2f} {name}")
