"""A JavaScript module in Node, called with values and files."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

NODE = shutil.which("node")


def run(script: str, **values: Any) -> Any:
    """What the body of an async function returns, with `values` in its reach; bytes and arrays go
    by files."""
    names = ", ".join(values)
    text = f"""
const {{ {names} }} = JSON.parse(process.argv[1]);
const done = await (async () => {{ {script} }})();
process.stdout.write(JSON.stringify(done ?? null));"""
    plain = {
        name: str(value) if isinstance(value, Path) else value for name, value in values.items()
    }
    assert NODE
    command = [NODE, "--input-type=module", "--eval", text, "--", json.dumps(plain)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)
