"""What `%gpudash` shows: the answer in words, and one picture that needs nothing beside it."""

import re
from xml.etree.ElementTree import fromstring

import pytest
from msgspec.structs import replace as change

from gpudash.protocol.answer import Answer
from gpudash.report.cell import lines, picture
from gpudash.snapshot import Snapshot
from tests.diagnosis.trainings import answered
from tests.tui import scenes

SVG = "{http://www.w3.org/2000/svg}"


def test_before_a_step_nothing_is_drawn():
    assert [*lines(Snapshot(), None)] == ["gpudash: no training step was seen so far"]
    assert picture(Snapshot()) == ""


def test_few_steps_have_a_rate_and_no_answer():
    few = change(scenes.running(), workload="a.ipynb", total_steps=3, answer=None, found="SGD")
    first, second = lines(few, 41.5)
    assert first.startswith("a.ipynb on ")
    assert first.endswith(": 3 steps, 41.5 steps/s; SGD")
    assert second == "too few steps were measured so far to say what limits it"


@pytest.mark.parametrize("doing", [None, "idle"])
def test_the_answer_is_the_same_while_no_cell_trains(doing):
    known = answered(scenes.serial())
    assert isinstance(known.answer, Answer)
    told = [*lines(change(known, doing=doing), 41.5)]
    assert (
        told[1]
        == f"{known.workload}: {known.answer.title}; a step " + told[1].rpartition("a step ")[2]
    )
    assert not any("before that" in line for line in told)


def test_the_picture_has_rate_and_steps_below_each_other():
    drawn = fromstring(picture(scenes.running()))
    assert drawn.tag == f"{SVG}svg"
    rate, steps = drawn.findall(f"{SVG}svg")
    assert float(rate.get("y")) + float(rate.get("height")) < float(steps.get("y"))
    texts = [one.text for one in drawn.findall(f"{SVG}text")]
    assert texts[:2] == ["samples a second", "a step's time, ms"]
    assert "forward" in texts
    _, _, _, height = map(float, drawn.get("viewBox").split())
    assert float(steps.get("y")) + float(steps.get("height")) <= height


def test_the_pictures_style_is_its_own_where_a_notebook_puts_it_into_its_page():
    (style,) = fromstring(picture(scenes.running())).findall(f"{SVG}style")
    selectors = re.findall(r"([^{}]+)\{[^{}]*:", re.sub(r"/\*.*?\*/|@media[^{]*\{", "", style.text))
    assert len(selectors) > 10
    each = (one.strip(" }\n") for some in selectors for one in some.split(","))
    assert all(one.startswith(".gpudash-cell") for one in each)


def test_the_picture_fetches_nothing():
    text = picture(scenes.running())
    assert [one for one in ("href", "url(", "<script") if one in text] == []
