"""HTML and SVG as a tree, in which text is always escaped. No I/O."""

from xml.etree.ElementTree import Element, tostring

from gpudash import format as fmt


def element(tag: str, *inside: Element | str | None, **attributes: object) -> Element:
    """Return an element with these texts and elements inside; None is left out.

    `class_` is the attribute `class`, and `_` in other names stands for `-`. Attributes that are
    None are left out. Floats are rounded to a tenth.
    """
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
    """Return a coordinate rounded to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def document(root: Element) -> str:
    """Return the page as HTML text."""
    return f"<!DOCTYPE html>\n{tostring(root, encoding='unicode', method='html')}\n"


def _text(value: object) -> str:
    return number(value) if isinstance(value, float) else fmt.plain(str(value))
