"""The guide's script, as it stands on the page, is found as the page says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.test_commands import ROOT, write_files

PAGE = ROOT / "docs" / "guide" / "your-own-training.md"


def test_the_script_on_the_page_is_found_as_it_says(tmp_path: Path, short_path: Path) -> None:
    write_files(PAGE, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "gpudash", "run", "--record", "run.csv", "train.py", "1"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "GPUDASH_RUN_DIR": str(short_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("epoch 0: loss ")
    assert done.stderr.startswith("gpudash: 20 steps, ")
    log = (tmp_path / "run.jsonl").read_text(encoding="utf-8")
    found = re.findall(r'"found":("[^"]*")', log)
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"`{json.loads(found[-1])}`" in page
