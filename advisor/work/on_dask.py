"""Work on many machines, by the workers of a dask scheduler; needs the extra ``magus-gpu[dask]``.

A worker needs the same version of Magus; one with another is found by what it returns.
"""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager
from itertools import islice
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ...compiler.codes import Code
from ...compiler.ir import Cancelled, Rejection, ShouldStop, never
from .pools import Submit, open_threads
from .processes import POLL_S, ProcessDied, Tell

if TYPE_CHECKING:
    from distributed import Client, Future

Item = TypeVar("Item")
Question = TypeVar("Question")
Answer = TypeVar("Answer")

CONNECT_S = 10.0
"""Seconds to wait for the scheduler, and then for its first worker."""
MIN_UNDER_WAY, MOST_ASKED = 16, 256
"""Tasks that a scheduler is given at least, else two for each thread of its workers; and questions at the same time."""
RESUME = "what is stored stays; the same command goes on from there"


class BackendError(Exception):
    """The machines that are to work cannot be reached; ``rejection`` has the code, the message and a hint."""

    def __init__(self, message: str, hint: str) -> None:
        self.rejection = Rejection(Code.MGS432, message, hint)
        super().__init__(message, hint)

    def __str__(self) -> str:
        return self.rejection.message


class Cluster(Generic[Question, Answer]):
    """The workers of the scheduler at ``address`` answer by ``answer_of``, in place of ``Processes``.

    Threads may share it. Its first question connects it.
    """

    def __init__(self, address: str, answer_of: Callable[[Question], Answer], connect_s: float = CONNECT_S) -> None:
        self.address = address
        self._answer_of, self._connect_s = answer_of, connect_s
        self._lock, self._client = Lock(), None

    @property
    def count(self) -> int:
        """How many questions are asked at the same time.

        Raises
        ------
        BackendError
            If dask is not installed, and if the scheduler or its workers do not answer.
        """
        return min(MOST_ASKED, _under_way(self._connected()))

    def ask(self, question: Question, should_stop: ShouldStop = never, tell: Tell = lambda what: None) -> Answer:
        """Return the answer.

        Raises
        ------
        ProcessDied
            If workers died of the question, again and again.
        BackendError
            As ``count``, and if the scheduler is lost.
        Cancelled
            If ``should_stop`` returned true first; what a worker has begun it ends for nobody.
        Exception
            What ``answer_of`` raises.
        """
        future, done = self._connected().submit(self._answer_of, question, pure=False), Event()
        future.add_done_callback(lambda _: done.set())
        while not done.wait(POLL_S):
            if should_stop():
                future.cancel()
                raise Cancelled
        return cast("Answer", result_at(self.address, future))

    def close(self) -> None:
        """Leave the scheduler; a later question connects again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> "Client":
        with self._lock:
            if self._client is None:
                self._client = _client(self.address, self._connect_s)
            return self._client


@contextmanager
def on_cluster(address: str) -> Iterator[Submit]:
    """Yield what has functions run by the workers of the dask scheduler at ``address``.

    Raises
    ------
    BackendError
        If dask is not installed, or nobody answers there.
    """
    cluster = Cluster[Any, Any](address, _called)
    with open_threads(cluster.count, cluster.close) as begin:
        yield lambda function, argument: begin(cluster.ask, (function, argument))


def _called(call: tuple[Callable[..., object], object]) -> object:
    """At a worker."""
    function, argument = call
    return function(argument, never)


def as_ended(
    address: str, task: Callable[[Item], object], items: Sequence[Item], connect_s: float = CONNECT_S
) -> Generator[tuple[Item, "Future"], None, None]:
    """Yield each of ``items`` with the future of its task as they end; one that ends makes room for the next.

    Raises
    ------
    BackendError
        If dask is not installed, and if the scheduler or its workers do not answer.
    """
    with closing(_client(address, connect_s)) as client:
        from distributed import as_completed

        waiting = iter(items)
        first = islice(waiting, _under_way(client))
        item_of = {client.submit(task, item, pure=False): item for item in first}
        done = as_completed(item_of, loop=client.loop)
        for future in done:
            yield item_of.pop(future), future
            for item in islice(waiting, 1):
                following = client.submit(task, item, pure=False)
                item_of[following] = item
                done.add(following)


def result_at(address: str, future: "Future") -> object:
    """Return what a worker of the scheduler at ``address`` found, or raise what its task raised.

    Raises
    ------
    BackendError
        If the scheduler is lost.
    ProcessDied
        If workers died of the task.
    """
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    try:
        return future.result()
    except (CancelledError, CommClosedError) as error:  # under way when the scheduler is lost, or just then fetched
        raise BackendError(f"the scheduler at {address} was lost", RESUME) from error
    except KilledWorker as error:
        raise ProcessDied(f"KilledWorker: {error}") from error


def _under_way(client: "Client") -> int:
    return max(MIN_UNDER_WAY, 2 * int(sum(client.nthreads().values())))


def _client(address: str, connect_s: float) -> "Client":
    """Return a client of the scheduler at ``address``, such as ``tcp://host:8786``, that has a worker."""
    import asyncio  # the rest of Magus has no event loop

    try:
        from distributed import Client
    except ImportError as error:
        hint = "install it with: pip install 'magus-gpu[dask]'"
        raise BackendError(f"the backend dask is not installed: {error}", hint) from error
    for name in ("distributed", "distributed.client"):  # what goes wrong is told once, by the errors below
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        asyncio.run(_answer(address, connect_s))
        client = Client(address, timeout=connect_s, set_as_default=False)
    except Exception as error:  # also what another kind of server makes of the question
        message = f"no scheduler of dask answers at {address}: {str(error) or 'it says nothing'}"
        hint = "start one with: dask scheduler; its address begins with tcp:// or tls:// and ends with its port"
        raise BackendError(message, hint) from error
    try:
        client.wait_for_workers(1, timeout=connect_s)
    except TimeoutError as error:
        client.close()
        message = f"the scheduler at {address} has no workers"
        hint = f"start some with: dask worker {address} --nworkers auto --nthreads 1"
        raise BackendError(message, hint) from error
    return client


async def _answer(address: str, limit_s: float) -> None:
    """Wait for the address to answer; a client would wait without end for a server that accepts and says nothing.

    Raises
    ------
    TimeoutError, OSError, ValueError
        If it does not, or is no address.
    """
    import asyncio

    from distributed.comm import connect
    from distributed.security import Security

    arguments = Security().get_connection_args("client")
    comm = await asyncio.wait_for(connect(address, timeout=limit_s, **arguments), limit_s + 1)
    comm.abort()
