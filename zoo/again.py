"""For makers of a release: `python zoo/again.py [NAME ...]` exports models of the zoo again.

After a change of the format or of the compiler: the numbers of a model stay, its files and what
its card says of them are made anew.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from add import describe_file

from pmeta import zoo
from pmeta.base.files import write_atomically
from pmeta.cli.export import ExportConfig, export_run
from pmeta.training.run_folder import write_json
from pmeta.zoo.card_text import text

BUDGETS = {"miniimagenet-4conv-5way-1shot": "600kB"}
"""Arenas of the first file of a model, which would take more in a plan without one."""


def again(name: str) -> None:
    """The files and the card of one model."""
    card = zoo.card(name)
    files = []
    for i, file in enumerate(card["files"]):
        budget = "" if i else BUDGETS.get(name, "")
        classes = file["outputs"] if i else None
        e = export_run(name, ExportConfig(name, classes=classes, memory_budget=budget))
        write_atomically(zoo.FOLDER / file["file"], e.data)
        files.append(describe_file(file["file"], file["outputs"], e))
        print(f"{file['file']}: {len(e.data):,} bytes, {e.arena_bytes:,} to adapt")
    card["files"] = files
    cards = zoo.FOLDER.parent.parent / "docs" / "zoo"
    write_atomically(cards / f"{name}.md", text(card).encode())
    write_json(zoo.FOLDER / f"{name}.json", card)


if __name__ == "__main__":
    for model in sys.argv[1:] or zoo.names():
        again(model)
