"""Several processes: the same sums as one, and the right words whatever happens to a worker."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from pmeta import cli
from pmeta.base.errors import DivergedError, WorkerDiedError
from pmeta.data.tasks import open_split
from pmeta.kinds.pictures.config import ImageConfig
from pmeta.kinds.pictures.train import build, task, training_loop
from pmeta.method.meta_gradient import MetaGradient, TaskGradients
from pmeta.method.outer import Outer
from pmeta.training import workers
from pmeta.training.meta_learning import add_up
from pmeta.training.settings import parse_bytes
from pmeta.training.workers import Group

TINY = ImageConfig(image_size=None, channels=8, groups=4, inner_steps=2, n_query=2, alpha_0=0.1)
CPU = torch.device("cpu")


def test_items_are_dealt_out_and_gathered_in_order() -> None:
    shares = [Group(rank, 3).share(range(8)) for rank in range(3)]
    assert [list(share) for share in shares] == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert list(Group().share([5, 6])) == [5, 6]


def test_alone_nothing_is_sent() -> None:
    one = {"a": torch.ones(2)}
    assert Group().add(one) is one
    assert Group().gather([1, 2]) == [1, 2]
    assert Group().from_first(lambda: "x") == "x"


def share_of_gradient(group: Group) -> MetaGradient:
    images = open_split("glyphs", "train")
    net, meta = build(TINY, images.shape, CPU)
    numbers = group.share(range(4))
    tasks = (task(TINY, images, i, CPU) for i in numbers)
    return add_up(group, TaskGradients(training_loop(net, TINY)).total(meta, tasks, numbers))


def talk(group: Group) -> dict[str, Any]:
    mixed = {
        "f32": torch.tensor([[0.1, group.rank]]),
        "f64": torch.tensor(10.0**group.rank, dtype=torch.float64),
    }
    return {
        "sum": group.add(mixed),
        "gathered": group.gather([f"{group.rank}{i}" for i in range(3 - group.rank)]),
        "from_first": group.from_first(lambda: {"rank": group.rank}),
        "threads": group.gather([torch.get_num_threads()]),
        "tasks": group.gather([group.share(range(5))]),
        "gradient": share_of_gradient(group),
    }


def test_two_processes_find_what_one_finds() -> None:
    found = workers.run(talk, (), 2)
    assert torch.equal(found["sum"]["f32"], torch.tensor([[0.2, 1.0]]))
    assert found["sum"]["f64"] == 11.0
    assert found["gathered"] == ["00", "10", "01", "11", "02"]
    assert found["from_first"] == {"rank": 0}
    assert found["threads"] == [1, 1]
    assert [list(share) for share in found["tasks"]] == [[0, 2, 4], [1, 3]]
    one, two = workers.run(share_of_gradient, (), 1), found["gradient"]
    assert one.gradients.keys() == two.gradients.keys()
    for name, g in one.gradients.items():
        assert float((two.gradients[name] - g).norm()) <= 1e-6 * float(g.norm()), name
        assert two.gradients[name].dtype == g.dtype
    assert (two.tasks, two.skipped) == (one.tasks, one.skipped) == (4, 0)
    assert two.loss == pytest.approx(one.loss, rel=1e-12)
    assert two.correct == pytest.approx(one.correct, rel=1e-12)


def adrift() -> None:
    outer = Outer.__new__(Outer)
    outer.bad_in_a_row, outer.done = 10, 10
    outer.check_finite(" Nothing is kept.")


def fail_in(group: Group, rank: int, how: str) -> None:
    group.from_first(lambda: None)
    if group.rank == rank:
        if how == "ours":
            parse_bytes("much")
        if how == "diverged":
            adrift()
        if how == "bug":
            raise KeyError("lost key")
        if how == "exit":
            os._exit(7)
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(3):
        group.add({"x": torch.zeros(1)})


@pytest.mark.parametrize(
    ("rank", "size", "how", "kind", "message"),
    [
        (
            1,
            2,
            "ours",
            ValueError,
            r"^a memory budget is a size such as 1MB, 800kB or 1\.5MiB, or a share of what MAML "
            r"takes such as 50%, got 'much'\.$",
        ),
        (
            1,
            2,
            "diverged",
            DivergedError,
            r"^loss or gradient was not finite in 10 updates in a row.* kept\.$",
        ),
        (
            2,
            3,
            "bug",
            WorkerDiedError,
            r"(?s)^worker 2 failed:\nTraceback .*in fail_in.*KeyError: 'lost key'\n$",
        ),
        (
            1,
            2,
            "exit",
            WorkerDiedError,
            r"^worker 1 ended with exit code 7 before its work was done\.$",
        ),
        (
            1,
            2,
            "killed",
            WorkerDiedError,
            r"^worker 1 was killed by signal 9: was there too little memory\?$",
        ),
    ],
)
def test_a_worker_that_fails_ends_all_with_its_own_error(
    rank: int, size: int, how: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        workers.run(fail_in, (rank, how), size)


class DiesOnTheWay:
    """Ends the worker while it unpacks its arguments, before it can say a word."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (5,)


def test_a_worker_that_never_starts_is_no_hang() -> None:
    with pytest.raises(
        WorkerDiedError, match=r"^worker 1 ended with exit code 5 before its work was done\.$"
    ):
        workers.run(fail_in, (DiesOnTheWay(), ""), 2)


def test_an_error_in_process_0_is_its_own() -> None:
    with pytest.raises(KeyError, match="lost key"):
        workers.run(fail_in, (0, "bug"), 2)


def test_the_command_line_tells_of_a_dead_worker_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def dead(*args: Any) -> None:
        raise WorkerDiedError("worker 1 was killed by signal 9: was there too little memory?")

    monkeypatch.setattr(workers, "run", dead)
    assert cli.main(["train", "glyphs-4conv-5way-1shot", "--out", "x"]) == 1
    assert (
        capsys.readouterr().err
        == "pmeta: error: worker 1 was killed by signal 9: was there too little memory?\n"
    )


ORPHAN = """
import os, sys, time
from pathlib import Path
from pmeta.training import workers

def sleep(group, folder):
    (Path(folder) / str(group.rank)).write_text(str(os.getpid()))
    time.sleep(600)

if __name__ == "__main__":
    workers.run(sleep, (sys.argv[1],), 2)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(what: Any, seconds: float = 120) -> None:
    """Fail if `what()` does not come true; the time is far more than it takes."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_workers_end_when_process_0_is_killed(tmp_path: Path) -> None:
    script, temporary = tmp_path / "orphan.py", tmp_path / "tmp"
    script.write_text(ORPHAN)
    temporary.mkdir()
    env = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=env) as parent:
        wait_until(
            lambda: all(
                (tmp_path / rank).exists() and (tmp_path / rank).read_text() for rank in "01"
            )
        )
        worker = int((tmp_path / "1").read_text())
        assert is_alive(worker)
        parent.kill()
    wait_until(lambda: not is_alive(worker))
    assert list(temporary.iterdir()) == []


def test_under_torchrun_one_process_of_many_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert workers.is_first()  # some other tool's RANK
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    assert not workers.is_first()
    monkeypatch.setenv("RANK", "0")
    assert workers.is_first()


def test_one_process_for_each_core_that_we_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 4, 5})
    assert workers.default_workers() == 3
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    assert workers.default_workers() == 8


class MallInfo(ctypes.Structure):
    """struct mallinfo2 of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    ]


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="not glibc")
def test_large_tensors_come_from_the_heap_and_stay_there() -> None:
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = MallInfo
    workers.keep_freed_memory()
    before = mallinfo2()
    large = torch.empty(2**22)
    assert mallinfo2().hblks == before.hblks  # no pages of its own
    arena = mallinfo2().arena
    del large
    assert mallinfo2().arena == arena


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="no transparent huge pages"
)
def test_large_tensors_may_lie_in_huge_pages() -> None:
    workers.keep_freed_memory()
    large = torch.empty(2**26)
    address = large.data_ptr() + large.nbytes // 2  # the ends may share pages with others
    flags = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if rest and "-" in first:
            start, end = (int(part, 16) for part in first.split("-"))
            inside = start <= address < end
        elif first == "VmFlags:" and inside:
            flags = line
    assert "hg" in flags.split()
