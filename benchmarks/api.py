"""What a runtime waits for: the import, answers known and new, and many at once from threads.

    python -m benchmarks.api

Requests are layers of Llama 3 on GPUs that ship. ``new`` answers are to requests that nobody asked before, of a process
that has answered others; nothing is kept on disk.
"""

import http.client
import json
import socket
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from magus.advisor import Advice, AdviceOptions, Advisor, Request
from magus.advisor.policy.distill import distilled, rule_python

from .harness.report import Figure, main, timed

AT_ONCE, SIMULATED = AdviceOptions(verify=False), AdviceOptions()
HURRIED = AdviceOptions(verify=False, within_s=0.005)
THREADS, PROCESSES, ALIKE = 8, 2, 1000
REPEATS = 20_000
RULE_OF = Request("AG+GEMM", m=4096, n=4096, k=4096, gpu="H100", ranks=8)
PORT, CLIENTS, REQUESTS = 18_377, 4, 10_240
QUESTION = {"pattern": "AG+GEMM", "n": 3584, "k": 8192, "gpu": "H100", "ranks": 8, "simulate": False}
SERVE = "import sys; from magus.tui.service.server import serve; serve('127.0.0.1', int(sys.argv[1]), 30.0, 2)"
IMPORT = (
    "import time; t = time.perf_counter(); from magus.advisor import Advisor, Request; print(time.perf_counter() - t)"
)


def requests(rows: Sequence[int]) -> list[Request]:
    """The up- and down-projection of Llama 3 70B with so many tokens, on 8 GPUs of two kinds."""
    return [
        replace(shape, m=m, gpu=gpu)
        for m in rows
        for gpu in ("H100", "MI300X")
        for shape in (
            Request("AG+GEMM", m=8, n=3584, k=8192, gpu="H100", ranks=8),
            Request("GEMM+RS", m=8, n=8192, k=3584, gpu="H100", ranks=8),
        )
    ]


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    imports = [float(subprocess.check_output([sys.executable, "-c", IMPORT])) for _ in range(5)]
    yield Figure("import of Advisor and Request", statistics.median(imports), "s", "lower", 0.5)
    advisor = Advisor.load()
    advisor.recommend_many(requests([1000]), AT_ONCE)
    yield Figure("known answer", _known_us(advisor), "us", "lower", 30)
    yield Figure("distilled rule", _rule_us(), "us", "lower", 5)
    yield Figure("new answer within 5 ms", 1e3 * _median_s(advisor, [1536, 2560, 3584], HURRIED), "ms", "lower", 10)
    yield Figure("new answer without simulation", 1e3 * _median_s(advisor, [2048, 4096], AT_ONCE), "ms", "lower", 10)
    yield Figure("new answer with simulation, 8 GPUs", _median_s(advisor, [2048, 8192], SIMULATED), "s", "lower", 3)
    yield Figure(f"CPU time of {ALIKE:,} requests that share", _shared_s(advisor), "s", "lower", 30)
    yield from _service()
    yield from _throughputs()


def _shared_s(advisor: Advisor) -> float:
    """CPU time of random numbers of tokens in four layers."""
    random, layers = Random(7), [(1024, 4096), (3584, 8192), (7168, 5120), (2048, 8192)]
    shapes = [(8 * random.randrange(4, 4096), *random.choice(layers)) for _ in range(ALIKE)]
    asked = [Request("AG+GEMM", m=m, n=n, k=k, gpu="H100", ranks=8) for m, n, k in shapes]
    since = time.process_time()
    advisor.recommend_many(asked, AT_ONCE, share=True)
    return time.process_time() - since


def _service() -> Iterator[Figure]:
    """Requests of four clients to a service in a process of its own, each question asked again and again."""
    with subprocess.Popen([sys.executable, "-c", SERVE, str(PORT)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        process.stderr.readline()  # it listens from now on, or in a moment
        _wait_for(PORT)
        bodies = [json.dumps({**QUESTION, "m": 512 * number}).encode() for number in range(1, 9)]
        _ask(bodies)  # new answers
        before = _resident_bytes(process.pid)
        since = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as pool:
            failed = sum(pool.map(lambda _: _ask(bodies * (REQUESTS // CLIENTS // len(bodies))), range(CLIENTS)))
        seconds = time.perf_counter() - since
        grown = _resident_bytes(process.pid) / before - 1
        process.terminate()
    yield Figure(f"service, errors in {REQUESTS} requests", failed, "", "lower", 0)
    yield Figure("service, known answers", REQUESTS / seconds, "/s", "higher")
    yield Figure("service, memory that these requests add", 100 * grown, "%", "lower", 5)


def _wait_for(port: int) -> None:
    for _ in range(200):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError("the service does not listen")


def _ask(bodies: Sequence[bytes]) -> int:
    """Ask on one connection; return how many answers are none."""
    failed = 0
    with closing(http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)) as connection:
        for body in bodies:
            connection.request("POST", "/v1/recommend", body)
            response = connection.getresponse()
            answer = json.loads(response.read())
            failed += response.status != 200 or "schedule" not in answer
    return failed


def _resident_bytes(pid: int) -> int:
    """The memory of a process and of those that it has begun."""
    listed = subprocess.check_output(["ps", "-A", "-o", "pid=,ppid=,rss="], text=True)
    processes = [list(map(int, line.split())) for line in listed.splitlines()]
    return sum(kib for own, parent, kib in processes if pid in (own, parent)) * 1024


def _known_us(advisor: Advisor) -> float:
    request = requests([1000])[0]
    advisor.recommend(request, AT_ONCE)
    since = time.perf_counter()
    for _ in range(REPEATS):
        advisor.recommend(request, AT_ONCE)
    return (time.perf_counter() - since) / REPEATS * 1e6


def _rule_us() -> float:
    names: dict[str, Any] = {}
    exec(rule_python(distilled(RULE_OF, num_shapes=200)), names)
    return min(timeit.repeat(lambda: names["schedule"](8192, 3584, 8192), number=1000, repeat=20)) / 1000 * 1e6


def _median_s(advisor: Advisor, rows: Sequence[int], options: AdviceOptions) -> float:
    return statistics.median(timed(partial(advisor.recommend, each, options))[0] for each in requests(rows))


def _throughputs() -> Iterator[Figure]:
    """Answers a second of several threads over those of one, which must be the same: in this process and beside it.

    Processes have begun and have answered once.
    """
    requested, alone = requests([1024, 3072]), Advisor.load()
    alone_s, answers = _timed(alone, requested, 1)
    here_s, here = _timed(Advisor(alone.proposals), requested, THREADS)
    with Advisor(alone.proposals).in_processes(PROCESSES) as several:
        several.recommend_many(requests([512]), SIMULATED)
        there_s, there = _timed(several, requested, THREADS)
    for others in (here, there):
        same = [one.candidates == other.candidates for one, other in zip(answers, others, strict=True)]
        assert all(same), "threads get other answers"
    label = f"throughput of {THREADS} threads over one, simulated"
    yield Figure(f"{label}, in one process", alone_s / here_s, "x", "higher")
    yield Figure(f"{label}, in {PROCESSES} processes", alone_s / there_s, "x", "higher", 1.5)


def _timed(advisor: Advisor, requested: Sequence[Request], threads: int) -> tuple[float, list[Advice]]:
    with ThreadPoolExecutor(threads) as pool:
        since = time.perf_counter()
        answers = list(pool.map(lambda request: advisor.recommend(request, SIMULATED), requested))
        return time.perf_counter() - since, answers


if __name__ == "__main__":
    raise SystemExit(main(__doc__.splitlines()[0], measure))
