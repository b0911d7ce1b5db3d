"""The tutorial's files do what the page says: its own tests pass, under pytest, in a folder."""

from pathlib import Path

from tests.docs.test_commands import ROOT, write_files
from tests.warm import python

PAGE = ROOT / "docs" / "guide" / "own-workload.md"


def test_the_tests_on_the_page_pass(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.py", "test_mine.py"]
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", cwd=tmp_path)
    assert "2 passed" in done.stdout, done.stdout


def test_the_workload_has_about_twenty_lines() -> None:
    function = PAGE.read_text(encoding="utf-8").partition("@workload(")[2].partition("```")[0]
    assert len([line for line in function.splitlines() if line.strip()]) <= 20
