"""What the guide gives to copy: an action for a forge, and a hook."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from gpudash.cli.main import parse

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
FENCE = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
HOOK = FENCE.findall((GUIDE / "gate.md").read_text())[0]
STEPS = yaml.safe_load((GUIDE / "forge" / "gate.yml").read_text())["jobs"]["gate"]["steps"]
STEP = next(one["run"] for one in STEPS if "gpudash gate" in one.get("run", ""))


@pytest.mark.parametrize("script", [HOOK, STEP], ids=["hook", "action"])
def test_the_gate_takes_what_stands_there(script: str) -> None:
    line = next(line for line in script.splitlines() if line.startswith("gpudash gate"))
    verb, arguments = parse(shlex.split(line.partition(" ||")[0])[1:])
    assert (verb.name, arguments.new, arguments.user_command) == (
        "gate",
        "HEAD",
        ["--", "train.py"],
    )


@pytest.mark.parametrize(("code", "stops"), [(0, 0), (3, 0), (4, 1), (6, 1)])
@pytest.mark.parametrize("script", [HOOK, STEP], ids=["hook", "action"])
def test_what_is_inconclusive_stops_nobody(
    script: str, code: int, stops: int, tmp_path: Path
) -> None:
    (tmp_path / "gpudash").write_text(f"#!/bin/sh\nexit {code}\n")
    (tmp_path / "gpudash").chmod(0o755)
    script = re.sub(r"\$\{\{.*?\}\}", "main", script)
    done = subprocess.run(
        ["sh", "-ec" if script != HOOK else "-c", script],
        check=False,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    assert done.returncode == stops
