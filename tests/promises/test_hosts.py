"""No file of ours names the host of a package registry: tools know where packages are."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
REGISTRIES = [
    ("registry", "npmjs", "org"),
    ("registry", "yarnpkg", "com"),
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("anaconda", "org"),
    ("crates", "io"),
    ("rubygems", "org"),
    ("jsdelivr", "net"),
    ("unpkg", "com"),
]
HOST = re.compile("|".join(re.escape(".".join(parts)) for parts in REGISTRIES).encode())


def test_no_file_names_the_host_of_a_package_registry() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    assert len(files) > 100
    found = [path for path in files if path.is_file() and HOST.search(path.read_bytes())]
    assert found == []


def test_a_host_is_found() -> None:
    for parts in REGISTRIES:
        assert HOST.search(b"https://" + ".".join(parts).encode() + b"/x")
    assert not HOST.search(b"pip install x; npm pack x")
