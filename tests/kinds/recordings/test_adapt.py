"""`pmeta adapt` and `pmeta predict` with recordings: the windows of the training, on the device."""

import dataclasses
import json
from pathlib import Path

import pytest

from pmeta.cli.device import adapt, predict
from pmeta.cli.export import export_run
from pmeta.kinds import train
from pmeta.training.workers import Group
from tests.helpers.recordings import write_people
from tests.kinds.recordings.test_train import TINY


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model.pmeta, and recordings of a person who was not trained with."""
    root = tmp_path_factory.mktemp("adapt")
    data, out = write_people(root / "people", people=4), str(root / "run")
    train(Group(), dataclasses.replace(TINY, data=str(data), out=out, test_people=("p3",)))
    (root / "model.pmeta").write_bytes(export_run(out).data)
    return root


def run(capsys: pytest.CaptureFixture[str], command: object, *argv: object) -> dict[str, object]:
    command.main([*map(str, argv), "--json"])  # type: ignore[attr-defined]
    return json.loads(capsys.readouterr().out)


def test_from_recordings_to_a_model_of_ones_own(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = files / "people" / "p3" / "watch"
    found = run(
        capsys, adapt, files / "model.pmeta", "--support", own / "0.csv",
        "--query", own / "1.csv", "--save", files / "mine.pmeta",
    )  # fmt: skip
    assert found["accuracy"] > 0.5  # type: ignore[operator]
    again = run(capsys, predict, files / "mine.pmeta", own / "1.csv", own / "2.csv")
    assert again["classes"] == ["quick", "rest", "slow"]


def test_a_person_may_lack_an_activity(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = files / "people" / "p3" / "watch"
    lines = (own / "0.csv").read_text().splitlines()
    few = files / "few.csv"
    few.write_text("\n".join(line for line in lines if not line.endswith("slow")) + "\n")
    with pytest.raises(ValueError, match=r"few\.csv line \d+: a gap in time"):
        adapt.main([str(files / "model.pmeta"), "--support", str(few)])
    few.write_text("\n".join(lines[:301]) + "\n")  # rest and slow, not quick
    found = run(capsys, adapt, files / "model.pmeta", "--support", few, "--query", own / "1.csv")
    assert found["support"] == 16  # 17 windows of 32 rows, one of them of both activities


def test_recordings_without_labels(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = files / "people" / "p3" / "watch"
    bare = files / "bare.csv"
    lines = (own / "1.csv").read_text().splitlines()
    bare.write_text("\n".join(line.rsplit(",", 1)[0] for line in lines) + "\n")
    with pytest.raises(ValueError, match="has none: add the column label"):
        adapt.main([str(files / "model.pmeta"), "--support", str(bare)])
    found = run(
        capsys, adapt, files / "model.pmeta", "--support", own / "0.csv", "--query", bare
    )  # fmt: skip
    assert found["predictions"]
