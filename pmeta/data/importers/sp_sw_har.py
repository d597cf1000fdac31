"""Smartphones and smartwatches, five activities, 23 people (Matey-Sanz et al. 2023, doi
10.1016/j.dib.2023.109809, CC BY 4.0)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pmeta.data.importers.write import Picture

DEVICES = {"sp": "phone", "sw": "watch"}


def recordings(src: Path) -> Iterator[Picture]:
    """DATA/sXX/sXX_YY_{sp,sw}.csv -> sXX/{phone,watch}/YY.csv; the files are kept as they are."""
    paths = sorted(src.rglob("s*_*_s[pw].csv"))
    if not paths:
        raise ValueError(
            f"sp-sw-har has files sXX/sXX_YY_sp.csv, {src} has none: give the folder DATA that its "
            "archive unpacks to."
        )
    for path in paths:
        match = re.fullmatch(r"(s\d+)_(\d+)_(sp|sw)\.csv", path.name)
        if match is None:
            raise ValueError(f"{path} is no sXX_YY_sp.csv: give the data set as it was published.")
        who, number, device = match.groups()
        yield Picture(who, DEVICES[device], f"{number}.csv", path.read_bytes())
