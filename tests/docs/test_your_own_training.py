"""The guide's script, as it stands on the page, is found as the page says."""

import json
import os
import re
import sys
from pathlib import Path

from tests.docs.test_commands import ROOT, write_files
from tests.waiting import done

PAGE = ROOT / "docs" / "guide" / "your-own-training.md"


def test_the_script_on_the_page_is_found_as_it_says(
    tmp_path: Path, short_path: Path, with_torch: Path
) -> None:
    write_files(PAGE, tmp_path)
    own = {"GPUDASH_RUN_DIR": str(short_path), "VIRTUAL_ENV": str(with_torch)}
    ran = done(
        *(sys.executable, "-m", "gpudash", "run", "--record", "run.csv", "train.py", "1"),
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | own,
    )
    assert ran.stdout.startswith("epoch 0: loss "), ran.stderr
    assert ran.stderr.startswith("gpudash: 20 steps, ")
    found = re.findall(r'"found":("[^"]*")', (tmp_path / "run.jsonl").read_text(encoding="utf-8"))
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"`{json.loads(found[-1])}`" in page
