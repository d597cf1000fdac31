"""A folder of made-up recordings: people who shake a sensor slowly, quickly, or not at all."""

from pathlib import Path

import numpy as np

ACTIVITIES = {"rest": 0.0, "slow": 3.0, "quick": 9.0}  # shakes a second


def write_people(
    root: Path, people: int = 5, devices: tuple[str, ...] = ("phone", "watch"), files: int = 3
) -> Path:
    """PERSON/DEVICE/N.csv at about 100 rows a second, 1.5 s of each activity; a watch is turned."""
    rng = np.random.default_rng(0)
    for p in range(people):
        for device in devices:
            for n in range(files):
                write_csv(root / f"p{p}" / device / f"{n}.csv", rng, turned=device == "watch")
    return root


def write_csv(path: Path, rng: np.random.Generator, turned: bool = False) -> None:
    rows, at = ["x,y,z,time,label"], 0
    for name, frequency in ACTIVITIES.items():
        for _ in range(150):
            shake = np.sin(2 * np.pi * frequency * at / 100) if frequency else 0.0
            v = np.array([shake, 0.3 * shake, 1.0]) + rng.normal(0, 0.05, 3)
            v = v[::-1] if turned else v
            rows.append(",".join(f"{n:.5f}" for n in v) + f",{at / 100:.2f},{name}")
            at += 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows) + "\n")
