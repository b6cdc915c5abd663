"""The same cells from many machines: each group of files is summed by a worker of Dask distributed.

Whoever can reach a Dask scheduler can run anything on its workers, and on whoever asks it: an address is trusted.
Nothing listens here; scheduler and workers bind to what their own commands say.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rooflens import __version__
from rooflens.collector.trace.cells import asked, in_order, merged, width_of
from rooflens.collector.trace.files import Progress, TraceFiles
from rooflens.collector.trace.partials import Group, Partial, Question, groups_of, partial_of
from rooflens.records import RooflensError
from rooflens.trace_records import Cells, TraceFilter

ADDRESS = re.compile(r"(?:(?:tcp|tls|ws|wss|ucx)://)?(?:[\w.-]+|\[[0-9A-Fa-f:.%]+\]):\d{1,5}")
ANSWER_S = 5.0  # for the scheduler to answer, and then for the first worker to be there
AHEAD = 3  # groups for each thread of the workers
PATIENCE = 3  # times ANSWER_S without any worker
RETRIES = 3  # of a group whose worker failed; one that dies is replaced by Dask itself
MISSING = "--dask needs Dask: pip install 'rooflens[trace,fleet]'"


def cells_on(
    address: str, files: TraceFiles, chosen: TraceFilter, width_s: float | None = None, progress: Progress | None = None
) -> Cells:
    """What cells.cells_of gives, to the last bit, summed by the workers of the scheduler at ``address``.

    The workers must see the files under the same names and have the same rooflens and DuckDB. RooflensError in one
    line where the scheduler does not answer, has no worker, or a group could not be summed.
    """
    width_s = width_s or width_of(files, chosen)
    groups, question = groups_of(files), asked(files, chosen, width_s)
    made_by = versions()
    with _client(address) as client:
        ahead = AHEAD * max(2, sum(client.nthreads().values()))

        def parts() -> Iterator[Partial]:
            def submit(group: Group) -> Any:
                future = client.submit(remote_partial, group, question, made_by, pure=False, retries=RETRIES)
                return _Watched(client, future)

            yield from in_order(groups, submit, ahead)

        return merged(files, chosen, groups, _told(parts(), address), width_s, progress)


@dataclass(frozen=True, slots=True)
class _Watched:
    """A group at a worker, which is not waited for when no worker is left."""

    client: Any
    future: Any

    def result(self) -> Partial:
        """Its sums; RooflensError in one line where the last worker went away, and none came in its place."""
        missed = 0
        while True:
            try:
                partial: Partial = self.future.result(timeout=ANSWER_S)
                return partial
            except TimeoutError:
                missed = 0 if self.client.nthreads() else missed + 1
                if missed >= PATIENCE:
                    raise RooflensError("the last worker went away: start `dask worker` again, see its log") from None

    def cancel(self) -> None:
        """It is not needed any more."""
        self.future.cancel()


def remote_partial(group: Group, question: Question, made_by: tuple[str, str]) -> Partial:
    """On a worker: the sums of a group; RooflensError where it would sum in another way than the one that asks."""
    if versions() != made_by:
        raise RooflensError(
            f"a worker has rooflens {versions()[0]} with DuckDB {versions()[1]}, here are {made_by[0]} and "
            f"{made_by[1]}: install the same on both"
        )
    return partial_of(group, question)


def versions() -> tuple[str, str]:
    """What the last bit of a sum may depend on: rooflens and DuckDB."""
    import duckdb

    return __version__, str(duckdb.__version__)


def _told(parts: Iterator[Partial], address: str) -> Iterator[Partial]:
    """The partials; what goes wrong on a worker is said in one line."""
    from distributed import KilledWorker

    try:
        yield from parts
    except RooflensError:
        raise
    except KilledWorker:
        raise RooflensError(
            f"--dask {address}: several workers died over the same files: give them more memory, see their logs"
        ) from None
    except ModuleNotFoundError as error:
        raise RooflensError(
            f"--dask {address}: a worker has no module {error.name}: pip install 'rooflens[trace]' where they run"
        ) from None
    except Exception as error:  # whatever happened on another machine
        words = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise RooflensError(f"--dask {address}: a worker failed: {words}") from None


@contextmanager
def _client(address: str) -> Iterator[Any]:
    if not ADDRESS.fullmatch(address):  # Dask itself waits for some odd ones without end
        raise RooflensError(f"--dask {address}: no address of a scheduler, such as tcp://127.0.0.1:8786")
    try:
        import distributed
    except ImportError:
        raise RooflensError(MISSING) from None
    _knock(address)
    library: Any = distributed
    client = library.Client.__new__(library.Client)
    try:
        client.__init__(address, timeout=ANSWER_S, set_as_default=False)
    except Exception as error:  # OSError, TimeoutError, ValueError for an odd address, by what is wrong
        client.status = "closed"  # else one that is half made closes itself later, and prints how that fails
        raise _silent(address, " ".join(str(error).split())[:160] or type(error).__name__) from None
    try:
        try:
            client.wait_for_workers(1, timeout=ANSWER_S)
        except Exception:
            raise RooflensError(
                f"--dask {address}: the scheduler has no workers: start `dask worker {address}` where the files are"
            ) from None
        yield client
    finally:
        client.close(timeout=ANSWER_S)


def _knock(address: str) -> None:
    """RooflensError where nothing answers over plain TCP within ANSWER_S; Dask's own limit ends only connecting.

    A scheduler speaks first: it says how it packs its messages.
    """
    scheme, _, place = address.rpartition("://")
    if scheme not in ("", "tcp"):
        return
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER_S) as talk:
            talk.settimeout(ANSWER_S)
            if not talk.recv(1):
                raise _silent(address, "it hangs up")
    except TimeoutError:
        raise _silent(address, f"nothing is said within {ANSWER_S:g} s") from None
    except OSError as error:
        words = error.strerror or str(error)
        raise _silent(address, words.lower()) from None
    except (ValueError, OverflowError):
        raise _silent(address, f"{port} is no port") from None


def _silent(address: str, why: str) -> RooflensError:
    return RooflensError(f"--dask {address}: no scheduler answers ({why}): start `dask scheduler` and name its address")
