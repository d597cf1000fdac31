"""Several processes that share the tasks of a meta-batch, by torch.distributed (Alg. 2)."""

import ctypes
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from pmeta.base.errors import DivergedError, WorkerDiedError, for_user

Result = TypeVar("Result")
LOST = 3
"""Exit code of a worker that ends because another process did."""


class PeerLostError(RuntimeError):
    """Another process of the group is gone; that one knows why."""


class Group:
    """This process among `size` of them. Alone it needs no torch.distributed."""

    def __init__(self, rank: int = 0, size: int = 1):
        self.rank, self.size = rank, size

    def share(self, items: Sequence[Any]) -> Sequence[Any]:
        """This process's part of the items: every size-th one."""
        return items[self.rank :: self.size]

    def add(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The sum over all processes, in one message."""
        if self.size == 1:
            return tensors
        flat = torch.cat([t.detach().double().flatten().cpu() for t in tensors.values()])
        with _talking():
            dist.all_reduce(flat)
        parts = flat.split([t.numel() for t in tensors.values()])
        return {
            name: part.view_as(t).to(t)
            for (name, t), part in zip(tensors.items(), parts, strict=True)
        }

    def gather(self, values: list[Any]) -> list[Any]:
        """The values of all processes in the order in which `share` dealt them out."""
        if self.size == 1:
            return values
        parts: list[Any] = [None] * self.size
        with _talking():
            dist.all_gather_object(parts, values)
        longest = max(len(part) for part in parts)
        return [part[i] for i in range(longest) for part in parts if i < len(part)]

    def from_first(self, get: Callable[[], Result]) -> Result:
        """What get() gives in process 0, the only one that calls it."""
        if self.size == 1:
            return get()
        box = [get()] if self.rank == 0 else [None]
        with _talking():
            dist.broadcast_object_list(box)
        return cast(Result, box[0])


@contextmanager
def _talking() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # the connection is gone
        raise PeerLostError(str(error)) from error


def run(work: Callable[..., Result], args: tuple[Any, ...], workers: int) -> Result:
    """work(group, *args) in `workers` processes; returns what process 0, this one, returns.

    Under torchrun this process is already one of many and takes its place among them. A worker that
    fails ends all with its own error."""
    keep_freed_memory()
    with one_thread():
        if under_torchrun():
            return _run_among(work, args)
        return work(Group(), *args) if workers == 1 else _run_several(work, args, workers)


def _run_among(work: Callable[..., Result], args: tuple[Any, ...]) -> Result:
    """As one of torchrun's processes; the one that failed says why."""
    try:
        with _talking():
            dist.init_process_group("gloo")
        return work(Group(dist.get_rank(), dist.get_world_size()), *args)
    except PeerLostError as error:
        reason = " ".join(str(error).split())
        raise WorkerDiedError(
            f"another process of torchrun is gone ({reason}): see what it said, and start again "
            "to go on."
        ) from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _run_several(work: Callable[..., Result], args: tuple[Any, ...], workers: int) -> Result:
    loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    if loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0])
    with tempfile.TemporaryDirectory(prefix="pmeta-") as folder:
        started = [_start(work, args, rank, workers, folder) for rank in range(1, workers)]
        try:
            # joining one that is not there would hang
            if not all(worker.is_ready() for worker in started):
                raise PeerLostError
            _join(folder, 0, workers)
            return work(Group(0, workers), *args)
        except PeerLostError as error:
            raise _cause(started, error) from error
        finally:
            for worker in started:
                worker.end()
            if dist.is_initialized():
                dist.destroy_process_group()


def _join(folder: str, rank: int, workers: int) -> None:
    with _talking():
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=workers
        )


@dataclass(frozen=True)
class Worker:
    """A process, and the line on which it says that it is ready and, if so, why it fails."""

    rank: int
    process: Any
    line: Connection

    def is_ready(self) -> bool:
        """Wait until it is, or has ended."""
        wait([self.line, self.process.sentinel])
        return self._word() == "ready"

    def _word(self) -> Any:
        try:
            return self.line.recv() if self.line.poll() else None
        except EOFError:
            return None

    def error(self) -> Exception | None:
        """What ended this worker, if it was not the end of another."""
        word, code = self._word(), self.process.exitcode
        if word:
            message, trace, diverged = word
            if message:
                return DivergedError(message) if diverged else ValueError(message)
            return WorkerDiedError(f"worker {self.rank} failed:\n{trace}")
        if code in (None, 0, LOST):
            return None
        if code < 0:
            return WorkerDiedError(
                f"worker {self.rank} was killed by signal {-code}: was there too little memory?"
            )
        return WorkerDiedError(
            f"worker {self.rank} ended with exit code {code} before its work was done."
        )

    def end(self) -> None:
        """Give it a moment to end by itself."""
        self.process.join(0.5)
        self.process.kill()
        self.process.join()
        self.line.close()


def _start(
    work: Callable[..., Any], args: tuple[Any, ...], rank: int, workers: int, folder: str
) -> Worker:
    spawn = multiprocessing.get_context("spawn")  # fork is not safe beside torch's threads
    ours, theirs = spawn.Pipe(duplex=False)
    process = spawn.Process(
        target=_work, args=(work, args, rank, workers, folder, theirs), daemon=True
    )
    with _deaf_to_ctrl_c():
        process.start()
    theirs.close()
    return Worker(rank, process, ours)


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """What starts meanwhile stays so: Ctrl-C reaches all processes, and process 0 ends the
    others."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work(
    work: Callable[..., Any], args: tuple[Any, ...], rank: int, workers: int, folder: str, line: Any
) -> None:
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    try:
        keep_freed_memory()
        torch.set_num_threads(1)
        line.send("ready")
        _join(folder, rank, workers)
        work(Group(rank, workers), *args)
    except PeerLostError:
        os._exit(LOST)
    except BaseException as error:
        message = str(error) if for_user(error) else ""
        line.send((message, traceback.format_exc(), isinstance(error, DivergedError)))
        os._exit(1)


def _end_with_parent(folder: str) -> None:
    """A worker may compute for minutes before it would notice that process 0 was killed."""
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(LOST)


def _cause(workers: list[Worker], lost: PeerLostError) -> Exception:
    """The error of the worker that failed first, rather than that of the connection to it."""
    deadline = time.monotonic() + 10
    while True:
        alive = [worker.process.sentinel for worker in workers if worker.process.exitcode is None]
        for worker in workers:
            if error := worker.error():
                return error
        if not alive or time.monotonic() > deadline:
            return WorkerDiedError(f"the processes lost each other ({lost}): start again to go on.")
        wait(alive, timeout=1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Tasks are dealt out to processes, which beats threads that share one task."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_first() -> bool:
    """Whether this process is the one that writes and shows; under torchrun only one of many is."""
    return not under_torchrun() or os.environ["RANK"] == "0"


def default_workers() -> int:
    """One process for each GPU, else for each core that this process may use."""
    if gpus := torch.cuda.device_count():
        return gpus
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory for the next tensor: fresh pages for every activation cost
    half the time. And have Linux use huge pages there."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        # M_MMAP_THRESHOLD, of which older glibc admits 32 MiB
        libc.mallopt(-3, 2**31 - 1) or libc.mallopt(-3, 2**25)
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
        _take_huge_pages(libc)


def _take_huge_pages(libc: ctypes.CDLL) -> None:
    """Extend the heap by 1 GB of addresses and ask for pages of 2 MB there: a task touches much
    memory, and fewer pages have to be looked up. What is never written takes no memory."""
    size, page, huge = 2**30, 2**21, 14  # MADV_HUGEPAGE
    libc.malloc.restype = ctypes.c_void_p
    start = libc.malloc(ctypes.c_size_t(size))
    if start:  # else the user has set a limit
        first = -(-start // page) * page
        libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size - page), huge)
        libc.free(ctypes.c_void_p(start))
