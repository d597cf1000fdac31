"""Jobs on every core."""

import multiprocessing
import os
import subprocess
import sys
import time

import pytest

from pmeta.base import processes


@pytest.mark.parametrize("parallel", [False, True])
def test_results_come_in_order(parallel):
    assert list(processes.run(abs, [-3, 2, -1], "counting", parallel)) == [3, 2, 1]


def process_id(_):
    return os.getpid()


def test_parallel_means_other_processes():
    assert os.getpid() not in processes.run(process_id, [1, 2, 3], "asking", parallel=True)
    assert set(processes.run(process_id, [1, 2, 3], "asking", parallel=False)) == {os.getpid()}


def in_a_daemon(queue):
    queue.put(list(processes.run(abs, [-1], "counting", parallel=True)))


def test_a_daemon_works_alone():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=in_a_daemon, args=(queue,), daemon=True)
    child.start()
    assert queue.get(timeout=120) == [1]
    child.join()


def leave_a_trace(path):
    path.touch()
    time.sleep(0.02)


def broken_off(jobs):
    for _ in processes.run(leave_a_trace, jobs, "waiting", parallel=True):
        raise RuntimeError("enough")


def test_after_an_error_the_rest_is_not_done(tmp_path):
    with pytest.raises(RuntimeError, match="enough"):
        broken_off([tmp_path / str(i) for i in range(300)])
    assert 1 <= len(list(tmp_path.iterdir())) < 300


CODE = (
    "from pmeta.base import processes\nprint(list(processes.run(abs, [-1, -2], 'counting', "
    "parallel=True)))"
)


def test_a_script_on_stdin_works():
    done = subprocess.run([sys.executable], input=CODE, capture_output=True, text=True)
    assert done.stdout == "[1, 2]\n"


def test_a_script_without_main_guard_runs_once(tmp_path):
    (tmp_path / "script.py").write_text(CODE)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "[1, 2]\n"
