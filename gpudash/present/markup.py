"""HTML and SVG as a tree, in which text is always escaped. No I/O."""

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

from gpudash import format as fmt

NAMESPACE = "http://www.w3.org/2000/svg"


def element(tag: str, *inside: Element | str | None, **attributes: object) -> Element:
    """Leave out what is None. `class_` is `class`; `_` in other names stands for `-`."""
    given = {
        name.removesuffix("_").replace("_", "-"): _text(value)
        for name, value in attributes.items()
        if value is not None
    }
    made = Element(tag, given)
    last: Element | None = None
    for one in inside:
        if isinstance(one, Element):
            made.append(one)
            last = one
        elif one is not None and last is None:
            made.text = (made.text or "") + fmt.plain(one)
        elif one is not None and last is not None:
            last.tail = (last.tail or "") + fmt.plain(one)
    return made


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def svg(
    title: str,
    about: str,
    inside: Iterable[Element],
    width: float,
    height: float,
    *,
    begin: float = 0.0,
    **more: str,
) -> Element:
    """Give screen readers `title` and `about`."""
    return element(
        "svg",
        element("title", title),
        element("desc", about) if about else None,
        *inside,
        viewBox=f"{number(begin)} 0 {number(width)} {number(height)}",
        role="img",
        aria_label=title,
        **more,
    )


def _text(value: object) -> str:
    return number(value) if isinstance(value, float) else fmt.plain(str(value))


MOST_LINES = 50
"""Most lines of failures, and of gpudash's notices: the newest are kept."""


def document(root: Element) -> str:
    return f"<!DOCTYPE html>\n{tostring(root, encoding='unicode', method='html')}\n"


# ── parts of a page ─────────────────────────────────────────────────────────────────────


def section(title: str, *inside: Element, about: str = "") -> Element:
    hint = element("p", about, class_="about") if about else None
    return element("section", element("h2", title), hint, *inside)


def scrolling(inside: Element) -> Element:
    return element("div", inside, class_="scrolling")


def table(
    head: Sequence[Element], rows: Iterable[Iterable[Element]], class_: str | None = None
) -> Element:
    above = element("thead", element("tr", *head)) if head else None
    body = element("tbody", *(element("tr", *cells) for cells in rows))
    return element("table", above, body, class_=class_)


def heads(*titles: str) -> list[Element]:
    return [th(title, left=True) for title in titles]


def th(text: str, *, left: bool = False) -> Element:
    return element("th", text, scope="col", class_="left" if left else None)


def texts(row: Iterable[str]) -> list[Element]:
    return [element("td", text, class_="left") for text in row]
