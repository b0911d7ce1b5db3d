"""The card of a verdict: what it claims, and that its picture holds what it draws."""

import re
from xml.etree import ElementTree as ET

import pytest

from gpudash.present.card import FLAT, HEIGHT, WIDTH, A, B, banner, card_of, markdown, picture
from tests.present.test_receipt import BF16, FUSED, RUN, WORKERS, changed
from tests.tui.comparisons import judged_as

COMMAND = "gpudash ab --lever num_workers=0,4 -- train.py"
CLEAR = judged_as(WORKERS, samples_per_s=(203.0, 762.0), host_ms=(76.0, 8.0), check_passed=True)
WHERE = changed(
    RUN,
    settings=RUN.settings | {"batch_size": "16"},
    versions={"torch": "2.11.0+cu130", "python": "3.11"},
)
INTERVAL = "95 % interval of 18 pairs, blocks of both in turns within a training"
PASSED = "control passed: the same setting twice shows no difference"
SVG = "{http://www.w3.org/2000/svg}"


def card(shown=CLEAR, command=COMMAND, **values):
    return card_of(judged_as(shown, **values), WHERE, command)


def test_the_markdown_has_all_that_somebody_else_needs():
    text = markdown(card())
    assert text.splitlines() == [
        "**num_workers 0 → 4 trains 3.75 times as fast: +275.0 % [+265.0, +285.0]**",
        "",
        "|  | num_workers=0 | num_workers=4 |",
        "| --- | --- | --- |",
        "| samples/s | 203 | 762 |",
        "| steps/s | 12.7 | 47.6 |",
        "| one step | 78.7 ms | 21.0 ms |",
        "| of it, the host is busy | 76.0 ms | 8.00 ms |",
        "",
        f"{INTERVAL}; {PASSED}; losses not compared.",
        text.splitlines()[10],
        "",
        f"    {COMMAND}",
    ]
    where = "train.py, batch size 16, NVIDIA H200, torch 2.11.0+cu130, gpudash "
    assert text.splitlines()[10].startswith(where)


@pytest.mark.parametrize(
    ("shown", "claim"),
    [
        (CLEAR, "num_workers 0 → 4 trains 3.75 times as fast"),
        (changed(CLEAR, change=0.152, low=0.151), "num_workers 0 → 4 trains 15.2 % faster"),
        (BF16, "precision fp32 → bf16 trains 5 % slower"),
        (FUSED, "fused_optimizer off → on: no difference shown"),
        (
            changed(CLEAR, check_passed=False),
            "num_workers 0 → 4: not proven, as the control failed",
        ),
        (
            changed(CLEAR, doing="over", start={"compile": "off"}, best={"compile": "on"}),
            "compile=on trains 3.75 times as fast",
        ),
    ],
)
def test_the_claim_says_no_more_than_was_proven(shown, claim):
    assert card(shown).claim == claim


@pytest.mark.parametrize(
    "values", [{"verdict": None, "failure": "it was ended"}, {"low": None, "high": None}]
)
def test_without_a_verdict_and_its_interval_there_is_no_card(values):
    assert card_of(changed(CLEAR, **values), WHERE, COMMAND) is None


def test_a_busy_machine_and_a_missing_control_are_told():
    assert "cores were short: the training waited for one 33 %" in card(core_wait_pct=33.0).control
    assert card(check_passed=None).control == "no control: too few pairs; losses not compared"


def test_what_was_not_measured_is_left_out():
    text = markdown(card(samples_per_s=(None, None), host_ms=(None, 2.0), command=""))
    assert [one for one in ("samples/s", "host", "    gpudash") if one in text] == []


def test_names_are_text_in_markdown_too():
    text = markdown(card(lever="a|b*c", a="<b>", b="[x](y)"))
    assert "| a\\|b\\*c=\\<b> | a\\|b\\*c=\\[x](y) |" in text


EXTREMES = [
    {},
    {"change": 1000.0, "low": 900.0, "high": 1100.0, "steps_per_s": (0.01, 1e9)},
    {"change": -0.99, "low": -0.999, "high": -0.98},
    {"change": 0.0, "low": -5.0, "high": 40.0},
    {"change": 0.0, "low": 0.0, "high": 0.0},
    {"steps_per_s": (None, None), "samples_per_s": (None, None)},
    {"host_ms": (1e9, 1e9)},
    {"lever": "学習率" * 60, "a": "x" * 200, "b": "<&>\x1b[31m"},
]


def numbers(one, *names):
    return [float(one.attrib[name]) for name in names]


@pytest.mark.parametrize("values", EXTREMES)
@pytest.mark.parametrize(
    ("drawn", "height"),
    [(picture, HEIGHT), (lambda one: banner(one, "no edit to train.py"), FLAT)],
    ids=["card", "banner"],
)
def test_everything_lies_in_the_picture(values, drawn, height):
    whole = ET.fromstring(drawn(card(**values)))
    assert (whole.attrib["width"], whole.attrib["height"]) == ("1200", f"{height:.0f}")
    for one in whole.iter(f"{SVG}rect"):
        x, y = (float(one.attrib.get(name, 0)) for name in "xy")
        wide, high = numbers(one, "width", "height")
        assert 0 <= x <= x + wide <= WIDTH
        assert 0 <= y <= y + high <= height
        assert wide >= 0
    for one in whole.iter(f"{SVG}line"):
        assert all(0 <= x <= WIDTH for x in numbers(one, "x1", "x2"))
    for one in whole.iter(f"{SVG}text"):
        size = float(one.attrib["font-size"])
        x, y = numbers(one, "x", "y")
        assert size <= y <= height
        wide = 0.5 * size * len(one.text)
        assert x + wide * {"end": 0, "middle": 0.5}.get(one.attrib.get("text-anchor"), 1) <= WIDTH


def test_the_command_lies_in_its_box_in_a_monospaced_font():
    command = "gpudash ab encdec --lever num_workers=0,2 --pairs 2 --set precision=fp32 --set a=b"
    whole = ET.fromstring(picture(card(command=command)))
    (told,) = [one for one in whole.iter(f"{SVG}text") if one.text == command]
    x, size = numbers(told, "x", "font-size")
    assert x + 0.602 * size * len(command) <= 1140


def test_the_axis_ends_where_a_rate_cannot_go_and_before_noise_rules_it():
    whole = ET.fromstring(picture(card(change=-0.129, low=-1.0, high=2064.0)))
    labels = [one.text for one in whole.iter(f"{SVG}text") if one.attrib["font-size"] == "16"]
    assert labels == ["-100", "0", "+500", "+1,000 %"]


def test_lengths_are_as_the_numbers():
    whole = ET.fromstring(picture(card()))
    rates = [one for one in whole.iter(f"{SVG}rect") if one.attrib["height"] == "30"]
    before, after = (float(one.attrib["width"]) for one in rates)
    assert after / before == pytest.approx(762 / 203, rel=0.01)
    steps = [
        float(one.attrib["width"])
        for one in whole.iter(f"{SVG}rect")
        if one.attrib["height"] == "24" and "fill-opacity" not in one.attrib
    ]
    assert steps[0] / steps[1] == pytest.approx(47.6 / 12.7, rel=0.01)


def test_no_difference_has_no_colour_of_a_win():
    assert B in picture(card())
    for unproven in (FUSED, changed(CLEAR, check_passed=False)):
        text = picture(card(unproven))
        assert A in text
        assert B not in text


def test_a_banner_has_both_steps_on_one_scale_and_its_note():
    whole = ET.fromstring(banner(card(), "no edit to train.py"))
    rows = [one for one in whole.iter(f"{SVG}rect") if one.attrib["height"] == "30"]
    before, after = (float(one.attrib["width"]) for one in rows[:2])
    assert before / after == pytest.approx(47.6 / 12.7, rel=0.01)
    told = [one.text for one in whole.iter(f"{SVG}text")]
    assert {"78.7 ms a step", "21.0 ms a step"} <= {*told}
    assert told[1].endswith(" · no edit to train.py")


def test_the_picture_needs_nothing_beside_it():
    text = picture(card(command="gpudash ab --lever x=1,2 -- a.py --url 'http://h/?a&b'"))
    assert not re.search(r"href|url\(|<style|var\(|currentColor|<script", text)
    assert "?a&amp;b" in text
