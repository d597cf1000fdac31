"""Several processes that share the tasks of a meta-batch, through torch.distributed (Alg. 2, line 3)."""

import ctypes
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Result = TypeVar("Result")


class WorkerDiedError(RuntimeError):
    """A worker process ended before its work was done."""


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
        dist.all_reduce(flat)
        parts = flat.split([t.numel() for t in tensors.values()])
        return {name: part.view_as(t).to(t) for (name, t), part in zip(tensors.items(), parts, strict=True)}

    def gather(self, values: list[Any]) -> list[Any]:
        """The values of all processes in the order in which `share` dealt them out."""
        if self.size == 1:
            return values
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, values)
        longest = max(len(part) for part in parts)
        return [part[i] for i in range(longest) for part in parts if i < len(part)]

    def from_first(self, value: Result) -> Result:
        """What process 0 has."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box)
        return box[0]


def run(work: Callable[..., Result], args: tuple[Any, ...], workers: int) -> Result:
    """work(group, *args) in `workers` processes; returns what process 0, this one, returns.

    Under torchrun this process is already one of many and takes its place among them. A worker that fails ends all with
    its own error."""
    keep_freed_memory()
    if "TORCHELASTIC_RUN_ID" in os.environ:
        dist.init_process_group("gloo")
        torch.set_num_threads(1)
        try:
            return work(Group(dist.get_rank(), dist.get_world_size()), *args)
        finally:
            dist.destroy_process_group()
    with _one_thread():
        return work(Group(), *args) if workers == 1 else _run_several(work, args, workers)


def _run_several(work: Callable[..., Result], args: tuple[Any, ...], workers: int) -> Result:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        errors = [f"{folder}/error{rank}" for rank in range(workers)]
        processes = [
            spawn.Process(target=_worker, args=(work, args, rank, workers, store, errors[rank]), daemon=True)
            for rank in range(1, workers)
        ]
        for process in processes:
            process.start()
        try:
            dist.init_process_group("gloo", init_method=store, rank=0, world_size=workers)
            return work(Group(0, workers), *args)
        except RuntimeError as error:  # a collective fails at once when a worker's connection is gone
            raise _cause(error, processes, errors) from error
        finally:
            for process in processes:
                process.join(0.5)
                process.kill()
                process.join()
            if dist.is_initialized():
                dist.destroy_process_group()


def _worker(work: Callable[..., Any], args: tuple[Any, ...], rank: int, workers: int, store: str, error_path: str) -> None:
    try:
        keep_freed_memory()
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=workers)
        work(Group(rank, workers), *args)
    except KeyboardInterrupt:
        os._exit(130)
    except BaseException:
        with open(error_path, "w") as file:
            file.write(traceback.format_exc())
        os._exit(1)


def _cause(error: RuntimeError, processes: list[Any], error_paths: list[str]) -> RuntimeError:
    """The error of the worker that died first, rather than that of the connection to it."""
    for process in processes:
        process.join(2)
    for rank, process in enumerate(processes, start=1):
        if process.exitcode is not None and process.exitcode < 0:
            return WorkerDiedError(f"worker {rank} was killed by signal {-process.exitcode}: was there too little memory?")
    for rank, path in enumerate(error_paths):
        if os.path.exists(path):
            with open(path) as file:
                text = file.read()
            if "Connection" not in text.splitlines()[-1]:
                return WorkerDiedError(f"worker {rank} failed:\n{text}")
    return error


@contextmanager
def _one_thread() -> Iterator[None]:
    """Tasks are dealt out to processes, which beats threads that share one task."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_first() -> bool:
    """Whether this process is the one that writes and shows; under torchrun only one of many is."""
    return os.environ.get("RANK", "0") == "0"


def default_workers() -> int:
    """One process for each GPU, else for each core that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return torch.cuda.device_count() or cores


def keep_freed_memory() -> None:
    """Tell glibc to keep freed memory for the next tensor: fresh pages for every activation cost half the time."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(-3, 2**31 - 1)  # M_MMAP_THRESHOLD
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
