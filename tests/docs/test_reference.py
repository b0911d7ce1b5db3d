"""The reference is what the program says of itself."""

import pytest

from docs.make_reference import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "make reference"


def test_no_page_of_the_reference_is_left_over() -> None:
    assert {path.name for path in FOLDER.glob("*.md")} == {*PAGES}
