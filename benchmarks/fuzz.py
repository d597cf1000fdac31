"""Hostile files for the engine under AddressSanitizer and UBSan.

    python benchmarks/fuzz.py [seconds]

1,000,000 mutated models or 5 minutes, whichever is first. Ends with exit code 0 and the numbers of
files when nothing was found, else with the sanitizer's report.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta import device
from pmeta.base import native
from tests.helpers.device_models import case

HERE = Path(__file__).parent.parent
MODELS = (
    ("mlp", 1),
    ("signal", 2),
    ("depthwise-12", 1),
    ("depthwise-12", 2),
)  # and the size of micro-batches


def main() -> int:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    flags = [
        "-std=c99",
        "-O1",
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        f"-I{device.ENGINE}",
    ]
    with tempfile.TemporaryDirectory() as name:
        program, model = Path(name) / "fuzz", Path(name) / "model.pmeta"
        files = [
            str(HERE / "tests" / "device" / "c" / "fuzz.c"),
            *map(str, native.sources(device.ENGINE)),
        ]
        subprocess.run([native.compiler(), *flags, "-o", str(program), *files, "-lm"], check=True)
        for kind, batch in MODELS:
            model.write_bytes(
                case(kind, "pmeta", seed=1, raw=kind == "depthwise-12", batch=batch).exported.data
            )
            print(f"{kind}, micro-batches of {batch}: ", end="", flush=True)
            done = subprocess.run(
                [str(program), str(model), str(10**6), str(seconds // len(MODELS)), "1"],
                check=False,
            )
            if done.returncode:
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
