"""The ledger: which figure a lever has, how it is known, and the order of the levers."""

import pytest
from msgspec.structs import replace as changed

from gpudash.present.change_axis import shared_axis
from gpudash.present.ledger import LeverRow, Standing, ledger
from gpudash.protocol.answer import Answer, Gain, Try
from gpudash.protocol.session import ComparisonShown
from gpudash.protocol.training import Lever
from gpudash.snapshot import Snapshot
from tests.having import having

ABOUT = {"effect": "next step", "summary": "", "source": ""}


def switch(name, value="off", **about):
    row = {key: about.pop(key) for key in ("acts",) if key in about}
    return LeverRow(
        lever=Lever(name=name, kind="switch", default="off", **ABOUT | about),
        value=value,
        pending=None,
        **row,
    )


def verdict(lever, low, change, high, *, a="off", b="on", settings=None, **values):
    return ComparisonShown(
        **{
            "lever": lever,
            "a": a,
            "b": b,
            "pairs": 12,
            "planned_pairs": 40,
            "change": change,
            "low": low,
            "high": high,
            "history": (),
            "sides": {"steps_per_s": (1.0, 1.0)},
            "verdict": "found",
            "failure": None,
            "settings": settings or {},
        }
        | values
    )


def seen(rows, *, tries=(), minor=(), verdicts=(), **values):
    """The ledger's rows by lever, in their order."""
    settings = {one.lever.name: one.value for one in rows}
    answer = Answer(limit="gpu", title="GPU-bound", tries=tries, minor=minor)
    snapshot = Snapshot(answer=answer, verdicts=verdicts, settings=settings, **values)
    return {one.row.lever.name: one for one in ledger(rows, snapshot)}


def promise(lever, low, high, how=""):
    return Try(lever, "on", "", "off", Gain(low, high, how=how), 10)


def test_open_estimates_are_first_then_what_is_unknown_proven_not_foreseen_minor_and_fixed():
    rows = [
        switch("fixed", refusal="your script sets it"),
        switch("nothing"),
        switch("minor"),
        switch("proven", "on"),
        switch("unknown"),
        switch("second"),
        switch("best"),
    ]
    others = {one.lever.name: one.value for one in rows if one.lever.name != "proven"}
    found = seen(
        rows,
        tries=(
            promise("best", 40.0, 60.0),
            promise("second", None, 20.0),
            Try("unknown", "on", "", "off", None, 70),
        ),
        minor=("minor",),
        verdicts=(verdict("proven", 0.1, 0.12, 0.14, settings=others),),
    )
    assert list(found) == ["best", "second", "unknown", "proven", "nothing", "minor", "fixed"]
    assert [one.worth for one in found.values()] == [
        "+40 to +60 %", "up to +20 %", "unknown", "+12.0 % [+10.0, +14.0]", "", "below 5 %", "",
    ]  # fmt: skip
    assert [one.state for one in found.values()] == [
        "",
        "",
        "takes ~70 s",
        "A/B 1, kept",
        "",
        "",
        "your script sets it",
    ]


def test_a_lever_with_two_proposals_stands_where_its_better_one_does():
    best, worse = promise("it", 40.0, 60.0), Try("it", "half", "", "off", Gain(5.0, 9.0), 10)
    rows = [switch("second"), switch("it")]
    found = seen(rows, tries=(best, promise("second", 20.0, 30.0), worse))
    assert list(found) == ["it", "second"]
    assert found["it"].worth == "+40 to +60 %"


@pytest.mark.parametrize(
    ("low", "change", "high", "state", "place"),
    [
        (-0.01, 0.0, 0.01, "no difference", Standing.PROVEN),
        (-0.2, -0.1, -0.05, "slower", Standing.PROVEN),
        (0.1, 0.12, 0.14, "A/B 1", Standing.FORESEEN),  # it is to be set
    ],
)
def test_a_proof_says_what_it_found(low, change, high, state, place):
    (row,) = seen([switch("it")], verdicts=(verdict("it", low, change, high),)).values()
    assert (row.state, row.standing) == (state, place)


def test_where_the_slower_value_is_active_the_way_back_is_the_gain():
    (row,) = seen([switch("it", "on")], verdicts=(verdict("it", -0.5, -0.2, -0.1),)).values()
    assert row == having(
        before="on",
        after="off",
        standing=Standing.FORESEEN,
        proof=pytest.approx((1 / 0.9 - 1, 0.25, 1.0)),
        state="A/B 1",
    )


def test_a_proof_replaces_the_estimate_of_the_same_two_values_only():
    rows = [switch("it")]
    proof = verdict("it", -0.01, 0.0, 0.01)
    assert seen(rows, tries=(promise("it", 9.0, 20.0),), verdicts=(proof,))["it"].proof
    count = Lever(name="it", kind="count", default="0", minimum=0, maximum=64, **ABOUT)
    rows = [LeverRow(lever=count, value="4", pending=None)]
    kept = verdict("it", 2.6, 2.75, 2.9, a="0", b="4")
    more = Try("it", "8", "", "4", Gain(70.0, 95.0), 30)
    assert seen(rows, tries=(more,), verdicts=(kept,))["it"] == having(
        before="4", after="8", worth="+70 to +95 %"
    )


def test_a_proof_with_other_settings_is_older_and_gives_way_to_an_estimate():
    rows = [switch("it"), switch("other", "on")]
    old = verdict("it", 0.1, 0.12, 0.14, settings={"other": "off"})
    assert seen(rows, verdicts=(old,))["it"].state == "A/B 1, older"
    assert seen(rows, tries=(promise("it", 9.0, 20.0),), verdicts=(old,))["it"] == having(
        proof=None, state=""
    )


@pytest.mark.parametrize(
    ("state", "about", "how"),
    [
        ("moves losses", {"numerics": True}, ""),
        ("rehearsed", {}, "rehearsed"),
        ("a probe", {"helps": (("on", "no loading"),)}, ""),  # it is no way to train
    ],
)
def test_an_estimate_says_what_it_is(state, about, how):
    found = seen([switch("it", **about)], tries=(promise("it", 9.0, 20.0, how),))
    assert found["it"].state == state


def test_a_running_a_b_shows_both_values_and_the_estimate_that_it_tests():
    running = verdict("it", None, None, None, verdict=None)
    row = seen([switch("it")], tries=(promise("it", 9.0, 20.0),), comparison=running)["it"]
    assert row.is_running
    assert (row.before, row.after, row.worth, row.state) == ("off", "on", "+9 to +20 %", "A/B runs")


def test_without_a_loader_levers_about_batches_say_so():
    workers = Lever(
        name="num_workers", kind="count", default="0", maximum=64,
        helps=(("next", "more workers"),),
        **ABOUT,
    )  # fmt: skip
    data = Lever(
        name="data", kind="choice", default="loader", choices=("loader", "resident"), **ABOUT
    )
    rows = [
        LeverRow(lever=workers, value="0", pending=None),
        LeverRow(lever=data, value="resident", pending=None),
    ]
    assert seen(rows)["num_workers"].state == "no loader here"
    fed = [rows[0], changed(rows[1], value="loader")]
    assert seen(fed)["num_workers"].standing is Standing.NOT_FORESEEN


@pytest.mark.parametrize(
    ("ends", "right"), [((), 0.1), ((0.02,), 0.1), ((0.31, 0.62), 0.8), ((1000.0,), 10.0)]
)
def test_one_axis_ends_above_the_largest_end_and_has_a_tenth_left_of_0(ends, right):
    assert shared_axis(ends) == having(right=pytest.approx(right), left=pytest.approx(-right / 10))


@pytest.mark.parametrize("low", [-0.2, -0.34, -0.99])
def test_the_axis_has_room_for_what_is_slower(low):
    axis = shared_axis((low, 0.02))
    assert axis.left <= low
    assert axis.left >= -1.0


@pytest.mark.parametrize("width", [10, 23, 60])
@pytest.mark.parametrize(
    "gain", [(-0.99, -0.5), (-0.1, 0.2), (0.0, 0.0), (0.1, 0.3), (0.5, 1000.0)]
)
def test_any_estimate_fits_the_axis(gain, width):
    drawn = shared_axis((0.4,)).estimate(*gain, width)
    assert len(drawn) == width
    assert ("▸" in drawn) == (gain[1] > 1)
