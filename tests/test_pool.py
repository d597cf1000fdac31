"""Jobs on every core."""

import os
import subprocess
import sys

import pytest

from pmeta import pool


@pytest.mark.parametrize("parallel", [False, True])
def test_results_come_in_order(parallel):
    assert list(pool.run(abs, [-3, 2, -1], "counting", parallel)) == [3, 2, 1]


def process_id(_):
    return os.getpid()


def test_parallel_means_other_processes():
    assert os.getpid() not in pool.run(process_id, [1, 2, 3], "asking", parallel=True)
    assert set(pool.run(process_id, [1, 2, 3], "asking", parallel=False)) == {os.getpid()}


def test_a_script_on_stdin_works_alone():
    code = "from pmeta import pool\nprint(list(pool.run(abs, [-1, -2], 'counting', parallel=True)))"
    done = subprocess.run([sys.executable], input=code, capture_output=True, text=True)
    assert done.stdout == "[1, 2]\n"
