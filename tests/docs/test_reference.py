"""The reference is what the program says of itself."""

import shutil
import subprocess

import pytest

from docs.make_man import PAGE, man_page
from docs.make_reference import FOLDER, PAGES
from gpudash.cli.verbs import VERBS, load


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "make reference"


def test_the_manual_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == man_page(), "make reference"


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_the_manual_page_has_no_mistake() -> None:
    command = ["mandoc", "-Tlint", "-Wwarning", PAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # a date would be stale at the next change
    assert [line for line in done.stdout.splitlines() if "missing date" not in line] == []


def test_the_manual_page_has_every_option_and_verb() -> None:
    page = man_page().replace("\\-", "-")
    for name in VERBS:
        assert f".SS {name}\n" in page
        for action in load(name).parser().actions:
            assert all(option in page for option in action.option_strings)


def test_no_page_of_the_reference_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*PAGES, PAGE.name}
