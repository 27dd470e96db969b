"""A corpus by the workers of a dask scheduler; and schedulers that do not answer."""

import os
import socket
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from magus.advisor.training.build import attempt, build_corpus, on_dask, records_of
from magus.advisor.training.record import engine_version
from magus.advisor.training.store import open_store
from magus.advisor.work.on_dask import MIN_UNDER_WAY, BackendError
from magus.advisor.work.workers import Failure
from magus.compiler.codes import Code
from tests.helpers.corpus import (
    DIES,
    FAILS,
    attempt_of_process,
    deadly_record,
    failing_record,
    quick_record,
    slow_record,
)

distributed = pytest.importorskip("distributed")

SEED = 4


def refused(address: str) -> str:
    with pytest.raises(BackendError) as caught:
        next(on_dask(address, 0.5)(partial(attempt, quick_record, SEED), range(3)))
    assert caught.value.rejection.code is Code.MGS432 and caught.value.rejection.hint
    return str(caught.value)


def test_a_scheduler_that_is_not_there_is_reported() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]

    assert f"no scheduler of dask answers at tcp://127.0.0.1:{port}: Timed out" in refused(f"tcp://127.0.0.1:{port}")


def test_a_server_that_says_nothing_is_reported() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        assert "it says nothing" in refused(f"tcp://127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.parametrize("address", ["", "nonsense", "carrier://pigeon", "tcp://127.0.0.1:99999999", "tcp://[", "a\0b"])
def test_an_address_of_another_form_is_reported(address: str) -> None:
    assert "no scheduler of dask answers" in refused(address)


def test_a_missing_extra_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)

    with pytest.raises(BackendError) as caught:
        next(on_dask("tcp://127.0.0.1:1")(partial(attempt, quick_record, SEED), range(3)))
    assert "pip install 'magus-gpu[dask]'" in caught.value.rejection.hint


def test_a_scheduler_without_workers_is_reported() -> None:
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster:
        assert "has no workers" in refused(cluster.scheduler_address)


@pytest.mark.slow
def test_two_processes_fill_a_store(cluster: Any, tmp_path: Path) -> None:
    count = 2 * MIN_UNDER_WAY
    with open_store(tmp_path / "store.db", engine_version()) as store:
        report = build_corpus(store, SEED, count, on_dask(cluster.scheduler_address), make=failing_record)

        assert (report.stored, [failure.subject for failure in report.failures]) == (count - 1, [f"scenario {FAILS}"])
        assert all(record == quick_record(drawn) for drawn, record in records_of(store, SEED))


@pytest.mark.slow
def test_searches_are_of_both_processes(cluster: Any) -> None:
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        processes = {str(number) for number in client.run(os.getpid).values()}

    ended = list(on_dask(cluster.scheduler_address)(attempt_of_process, range(8)))

    assert sorted(each.idx for each in ended) == list(range(8))
    assert {each.key for each in ended} == processes and len(processes) == 2


@pytest.mark.slow
def test_a_worker_that_dies_again_and_again_costs_one_scenario(cluster: Any, tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db", engine_version()) as store:
        report = build_corpus(store, SEED, 6, on_dask(cluster.scheduler_address), make=deadly_record)

        assert f"scenario {DIES}" in [failure.subject for failure in report.failures]
        assert all("KilledWorker" in failure.reason for failure in report.failures)
        assert report.stored == 6 - len(report.failures)


@pytest.mark.slow
def test_a_scheduler_that_is_lost_in_the_middle_is_reported(tmp_path: Path) -> None:
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        open_store(tmp_path / "store.db", engine_version()) as store,
    ):
        done = on_dask(cluster.scheduler_address)(partial(attempt, slow_record, SEED), range(200))
        first = next(done)
        assert not isinstance(first.found, Failure)
        store.add(first.key, first.found, first.seconds)
        cluster.close()
        with pytest.raises(BackendError, match="was lost"):
            list(done)
        assert store.record(first.key) == first.found
