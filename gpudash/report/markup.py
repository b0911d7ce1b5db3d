"""The sections and tables of a page, and the page as text. No I/O."""

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

from gpudash.markup import element

MOST_LINES = 50
"""Most lines of failures, and of gpudash's notices: the newest are kept."""


def document(root: Element) -> str:
    """Return the page as HTML text."""
    return f"<!DOCTYPE html>\n{tostring(root, encoding='unicode', method='html')}\n"


# ── parts of a page ─────────────────────────────────────────────────────────────────────


def section(title: str, *inside: Element, about: str = "") -> Element:
    """Return a section; `about` is small print below its title."""
    hint = element("p", about, class_="about") if about else None
    return element("section", element("h2", title), hint, *inside)


def scrolling(inside: Element) -> Element:
    """Return an element that scrolls sideways in a narrow window."""
    return element("div", inside, class_="scrolling")


def table(
    head: Sequence[Element], rows: Iterable[Iterable[Element]], class_: str | None = None
) -> Element:
    """Return a table of cells; `head` may be empty."""
    above = element("thead", element("tr", *head)) if head else None
    body = element("tbody", *(element("tr", *cells) for cells in rows))
    return element("table", above, body, class_=class_)


def heads(*titles: str) -> list[Element]:
    """Return the heads of text columns."""
    return [th(title, left=True) for title in titles]


def th(text: str, *, left: bool = False) -> Element:
    """Return the head of a column."""
    return element("th", text, scope="col", class_="left" if left else None)


def texts(row: Iterable[str]) -> list[Element]:
    """Return cells of text."""
    return [element("td", text, class_="left") for text in row]
