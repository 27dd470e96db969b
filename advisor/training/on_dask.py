"""A corpus on many machines: searches by the workers of a dask scheduler; needs the extra ``magus-gpu[dask]``.

A worker needs the same version of Magus; one with another is found by the key of what it returns.
"""

import asyncio
import logging
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from ...compiler.codes import Code
from .build import OTHER_VERSION, Attempt, Backend, Task, failed_for
from .store import BackendError

if TYPE_CHECKING:
    from distributed import Client, Future


CONNECT_S = 10.0
"""Seconds to wait for the scheduler, and then for its first worker."""
MIN_UNDER_WAY = 16
"""Searches that a scheduler is given at least; else two for each thread of its workers."""
RESUME = "what is stored stays; the same command goes on from there"


def on_dask(address: str, connect_s: float = CONNECT_S) -> Backend:
    """Return the backend of the workers of the scheduler at ``address``, such as ``tcp://host:8786``.

    Its searches raise ``BackendError`` if dask is not installed, and if the scheduler or its workers do not answer.
    """
    return partial(_run, address, connect_s)


def _run(address: str, connect_s: float, task: Task, indices: Sequence[int]) -> Generator[Attempt, None, None]:
    with _connected(address, connect_s) as client:
        yield from _as_done(client, address, task, indices)


@contextmanager
def _connected(address: str, connect_s: float) -> "Iterator[Client]":
    try:
        from distributed import Client
    except ImportError as error:
        hint = "install it with: pip install 'magus-gpu[dask]'"
        raise BackendError(Code.MGS432, f"the backend dask is not installed: {error}", hint) from error
    for name in ("distributed", "distributed.client"):  # what goes wrong is told once, by the errors below
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        asyncio.run(_answer(address, connect_s))
        client = Client(address, timeout=connect_s, set_as_default=False)
    except Exception as error:  # also what another kind of server makes of the question
        message = f"no scheduler of dask answers at {address}: {str(error) or 'it says nothing'}"
        hint = "start one with: dask scheduler; its address begins with tcp:// or tls:// and ends with its port"
        raise BackendError(Code.MGS432, message, hint) from error
    with closing(client):
        try:
            client.wait_for_workers(1, timeout=connect_s)
        except TimeoutError as error:
            message = f"the scheduler at {address} has no workers"
            hint = f"start some with: dask worker {address} --nworkers auto --nthreads 1"
            raise BackendError(Code.MGS432, message, hint) from error
        yield client


async def _answer(address: str, limit_s: float) -> None:
    """Wait for the address to answer; a client would wait without end for a server that accepts and says nothing.

    Raises
    ------
    TimeoutError, OSError, ValueError
        If it does not, or is no address.
    """
    from distributed.comm import connect
    from distributed.security import Security

    arguments = Security().get_connection_args("client")
    comm = await asyncio.wait_for(connect(address, timeout=limit_s, **arguments), limit_s + 1)
    comm.abort()


def _as_done(client: "Client", address: str, task: Task, indices: Sequence[int]) -> Iterator[Attempt]:
    """Yield attempts as they end; a search that ends makes room for the next."""
    from distributed import as_completed

    waiting = iter(indices)
    under_way = max(MIN_UNDER_WAY, 2 * sum(client.nthreads().values()))
    first = islice(waiting, under_way)
    idx_of = {client.submit(task, idx, pure=False): idx for idx in first}
    done = as_completed(idx_of, loop=client.loop)
    for future in done:
        yield _attempt_of(idx_of.pop(future), future, address)
        for idx in islice(waiting, 1):
            following = client.submit(task, idx, pure=False)
            idx_of[following] = idx
            done.add(following)


def _attempt_of(idx: int, future: "Future", address: str) -> Attempt:
    try:
        found = future.result()
    except CancelledError as error:  # of all searches under way, when the client loses the scheduler
        raise BackendError(Code.MGS432, f"the scheduler at {address} was lost", RESUME) from error
    except Exception as error:  # beyond what a search itself reports: its process died, or has no Magus
        return Attempt(idx, failed_for(idx, f"{type(error).__name__}: {error}"))
    return found if isinstance(found, Attempt) else Attempt(idx, failed_for(idx, OTHER_VERSION))
