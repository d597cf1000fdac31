"""The engine in Chromium beside the native one: the same model, pictures and vectors of 128 bits.

    python benchmarks/web.py                            # writes benchmarks/web.json
    python benchmarks/web.py --picture docs/teach.png   # also a picture of the page in use

Both adapt `miniimagenet-4conv` to 5 classes of 5 pictures, in turn, so that both meet the same
machine; the native one is compiled as `pmeta adapt` compiles it (SSE2 on x86-64). The figures are
wall time of a whole adaptation: the best of all, and the median.
"""

import argparse
import base64
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))

from pmeta import device, zoo
from pmeta.web.page import page
from tests.helpers.chromium import Page, chromium, find
from tests.helpers.pictures import scenes
from tests.helpers.teaching import COLOURS, begin, drawn, show, teach

ROOT = Path(__file__).parent.parent
N_WAY, N_SHOT, ROUNDS = 5, 5, 15
MODEL = zoo.find("miniimagenet-4conv", N_WAY)
IN_PAGE = """(async () => {{
  const [n, size] = [{n}, 21168];
  const all = Uint8Array.from(atob("{pixels}"), (c) => c.charCodeAt(0));
  const samples = Array.from({{ length: n }}, (_, i) => all.slice(i * size, (i + 1) * size));
  const start = performance.now();
  let inside = 0;
  await teachPage.remote.adapt(samples, {labels}, (step) => {{ inside += step.milliseconds; }});
  return [inside, performance.now() - start];
}})()"""


def measure(tab: Page) -> dict[str, list[float]]:
    """Milliseconds of each adaptation: native, in the Worker, and as the page waits for it."""
    x = scenes(N_WAY * N_SHOT, 84, np.random.default_rng(0))
    y = np.repeat(np.arange(N_WAY), N_SHOT)
    pixels = base64.b64encode(x.tobytes()).decode()
    script = IN_PAGE.format(n=len(x), pixels=pixels, labels=y.tolist())
    native = device.load(MODEL)
    found: dict[str, list[float]] = {"native": [], "worker": [], "page": []}
    for i in range(ROUNDS + 1):
        start = perf_counter()
        native.adapt(x, y)
        times = [1000 * (perf_counter() - start), *tab.evaluate(script)]
        if i:  # the first round warms up
            for name, milliseconds in zip(found, times, strict=True):
                found[name].append(milliseconds)
    return found


def picture(tab: Page, html: Path, folder: Path, path: Path) -> None:
    """The page in use, with drawn shapes."""
    files = {kind: [folder / f"{kind}{i}.png" for i in range(6)] for kind in COLOURS}
    for kind, paths in files.items():
        for i, file in enumerate(paths):
            drawn(kind, i).save(file)
    begin(tab, html, width=1160, height=760)
    show(tab, files, 5)
    teach(tab)
    tab.choose("#try-files", [files["bars"][5], files["square"][5], files["disc"][5]])
    tab.wait("document.querySelector('#verdict b')?.textContent === 'disc'")
    tab.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
    tab.evaluate("new Promise((done) => setTimeout(done, 400))")
    tab.picture(path)
    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    binary = find()
    if binary is None:
        raise SystemExit("the page is measured in Chromium: apt-get install chromium.")
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    with tempfile.TemporaryDirectory() as folder, chromium(binary) as tab:
        html = Path(folder) / "teach.html"
        html.write_text(page(MODEL.read_bytes(), MODEL.stem), encoding="utf-8")
        begin(tab, html)
        found = measure(tab)
        if options.picture:
            picture(tab, html, Path(folder), options.picture)
    result: dict[str, object] = {
        "machine": platform.machine(),
        "browser": version.stdout.strip().split(" built")[0],
        "page_bytes": len(page(MODEL.read_bytes(), MODEL.stem).encode()),
        "best_ms": {name: round(min(times), 1) for name, times in found.items()},
        "median_ms": {name: round(statistics.median(times), 1) for name, times in found.items()},
        "ratio_of_best": round(min(found["page"]) / min(found["native"]), 2),
    }
    (ROOT / "benchmarks/web.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
