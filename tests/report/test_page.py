"""The page: everything that was given is in it, and nothing in it is markup that should be text."""

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from markupsafe import escape

from pmeta.report.page import TEMPLATES, by_setup, page, run_steps
from pmeta.report.read import Given
from tests.helpers.report_folders import MINI, run_of, table


def test_a_table_in_the_page() -> None:
    shown = page(Given(tables=[table()]), "x")
    assert "<b>36.4 ± 0.5</b><br><small>paper 47.1</small>" in shown
    assert "<b>≤ 0.99</b><br><small>paper 1.00</small>" in shown
    assert "–<br><small>paper 47.1</small>" in shown
    assert '<p class="note">1 cell is missing: no CUB: --data cub=DIR.</p>' in shown
    assert "what each row gains over x/x" in shown


def test_runs_stand_in_their_set_ups_in_the_order_of_the_methods(tmp_path: Path) -> None:
    runs = [
        run_of(tmp_path / "a"),
        run_of(tmp_path / "b", method="maml"),
        run_of(tmp_path / "c", n_shot=5),
    ]
    found = {group[0].setup: [run.method for run in group] for group in by_setup(runs)}
    assert found == {
        "mini 84x84, 4Conv, 5-way 1-shot": ["maml", "pmeta"],
        "mini 84x84, 4Conv, 5-way 5-shot": ["pmeta"],
    }


def test_a_run_in_the_page(tmp_path: Path) -> None:
    run = run_of(tmp_path / "a", validations=3)
    shown = page(Given(runs=[dataclasses.replace(run, failed="diverged")]), "x")
    assert "<b>This run ended with an error: </b>diverged" in shown
    assert "Step sizes α after 1,200 tasks" in shown
    assert "<div>tasks: <b>800</b></div>" in shown  # not the default
    assert '<div class="usual">n_way: <span>5</span></div>' in shown
    assert '<label class="slider" hidden>' in shown  # until the script shows it
    assert '{"history":[[400,' in shown
    row = re.search(r"<tr><th>fc</th>(.*?)</tr>", shown, re.S)
    assert row
    assert re.findall(r">([^<]+)</td>", row[1]) == [".030", ".060", ".090", ".120", ".150"]
    assert shown.count(">·</td>") == 35
    assert "<details open>" in shown


def test_a_slider_goes_through_all_validations(tmp_path: Path) -> None:
    steps = run_steps(run_of(tmp_path / "a", validations=3))
    assert [tasks for tasks, _ in steps["history"]["history"]] == [400, 800, 1200]
    assert (steps["at"], steps["history"]["largest"]) == (2, pytest.approx(0.15))
    once = run_of(tmp_path / "b", validations=1, config=MINI)
    assert '<label class="slider"' not in page(Given(runs=[once]), "x")


def test_a_template_that_asks_for_what_is_not_there_fails() -> None:
    with pytest.raises(UndefinedError):
        TEMPLATES.get_template("page.html").render(title="x")


TEXT = TEMPLATES.from_string('<p title="{{ text }}">{{ text }}{{ text | tojson }}</p>')


@given(st.text())
def test_no_text_can_become_markup(text: str) -> None:
    found = TEXT.render(text=text)
    assert (found.count("<"), found.count(">")) == (2, 2)
    assert found.partition(">")[0].count('"') == 2


@pytest.mark.parametrize("title", ["</title><script>", '"><b>', "{{ 7 * 7 }}", "a & b"])
def test_a_title_stays_text(title: str) -> None:
    shown, plain = page(Given(), title), page(Given(), "x")
    assert [shown.count(sign) for sign in "<>"] == [plain.count(sign) for sign in "<>"]
    assert str(escape(title)) in shown
