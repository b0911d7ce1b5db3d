"""Joules and money of a comparison: what is printed, what is in the document, what is refused."""

import json
from argparse import Namespace
from itertools import cycle

import jsonschema
import msgspec
import pytest

from gpudash.cli.ab import of_instruments
from gpudash.cli.ab_report import ComparisonReport
from gpudash.cli.headless import cost_clause
from gpudash.cli.tune import document, lines
from gpudash.cli.verbs import load
from gpudash.compare.energy import money, of_a_million, saved_a_day
from gpudash.errors import Exit, UsageError
from gpudash.snapshot import Snapshot
from tests.compare.test_tuning import Training, faster_in_nhwc, tuning
from tests.metered_worker import Metered
from tests.scripted_session import ScriptedSession, called
from tests.scripted_worker import Conducted, Worker


@pytest.fixture(autouse=True)
def no_repository(monkeypatch, tmp_path):
    """What is compared here is no attempt at this project."""
    monkeypatch.chdir(tmp_path)


WOBBLE = (1.0, 1.002, 0.999, 1.001, 0.998)


class MeteredWorker(Metered, Worker):
    """Steps of 50 or 40 ms with 8 samples, at 300 W."""


def ended(ratio=1.25, *, price=None, energy=False, metered=True, as_json=False):
    wobble = cycle(WOBBLE)

    def step_ms(settings):
        return 50.0 * next(wobble) / (ratio if settings["pipelined"] == "on" else 1.0)

    worker = MeteredWorker(step_ms, power_w=lambda _: 300.0) if metered else Worker(step_ms)
    asked = {"--energy": energy, "--json": as_json, f"--price={price}": price is not None}
    words = (word for word, is_asked in asked.items() if is_asked)
    compared = ("ab", "encdec", "--lever", "pipelined=off,on", "--pairs", "6", "-q", *words)
    assert called(*compared, trains=[ScriptedSession(worker)]) == Exit.DONE


# ── money ───────────────────────────────────────────────────────────────────────────────


def test_a_million_samples_cost_the_hours_that_they_take_on_all_gpus():
    assert of_a_million(3.6, 1, 1000.0) == pytest.approx(1.0)
    assert of_a_million(3.6, 8, 1000.0) == pytest.approx(8.0)
    assert of_a_million(3.6, 0, 1000.0) == pytest.approx(1.0)  # a CPU: the machine's price
    assert of_a_million(3.6, 1, None) is None
    assert saved_a_day(3.0, 2, 1.0) == 3.0 * 2 * 24 / 2  # twice as fast


@pytest.mark.parametrize(
    ("amount", "text"), [(None, "–"), (0.0, "0.00"), (0.00123, "0.00123"), (1234.5, "1,234.50")]
)
def test_amounts_are_in_hundredths_unless_they_are_small(amount, text):
    assert money(amount) == text


AT_PRICE = "at 2.75 an hour for a GPU, a million samples cost"
LAST_LINE = {
    "with a price it says what the faster one saves": (
        {"price": 2.75},
        f"{AT_PRICE} 4.77 with off and 3.82 with on; on saves 13.19 a day [",
        "]",
    ),
    "where no difference is shown nothing is saved": (
        {"ratio": 1.0, "price": 2.75},
        AT_PRICE,
        "; no saving is shown",
    ),
    "energy is said with its uncertainty and the sensor's": (
        {"energy": True},
        "energy of a sample: off 1.8750 ± 0.0016 J, on 1.5000 ± 0.0013 J: -20.0 % [",
        "; the sensor may be off by 5 %, alike for both",
    ),
    "energy that is not known has its reason": (
        {"energy": True, "metered": False},
        "energy is not known: GPUs that train: 1, ",
        "energy counters read: 0",
    ),
}


@pytest.mark.parametrize(("how", "begins", "ends"), LAST_LINE.values(), ids=LAST_LINE)
def test_a_verdict_is_followed_by(how, begins, ends, capsys):
    ended(**how)
    line = capsys.readouterr().out.splitlines()[-1]
    assert (line[: len(begins)], line[-len(ends) :]) == (begins, ends)


def test_without_a_price_nothing_is_said_of_money(capsys):
    ended()
    assert "cost" not in capsys.readouterr().out


class Trained:
    steps_per_s = 20.0


@pytest.mark.parametrize(
    ("snapshot", "price", "clause"),
    [
        (Snapshot(total_steps=100, total_samples=800), 2.75, "a million samples cost 4.77"),
        (Snapshot(total_steps=100, total_samples=800), None, ""),
        (Snapshot(total_steps=100, total_samples=None), 2.75, ""),
        (Snapshot(), 2.75, ""),
    ],
)
def test_a_run_ends_with_the_cost_of_its_samples_if_they_are_known(snapshot, price, clause):
    assert cost_clause(Trained(), snapshot, price) == clause


# ── joules ──────────────────────────────────────────────────────────────────────────────


def test_the_document_has_both_and_keeps_its_schema(capsys):
    ended(energy=True, price=2.75, as_json=True)
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, msgspec.json.schema(ComparisonReport))
    assert found["energy"]["change"] == pytest.approx(-0.2, abs=0.005)
    assert found["energy"]["within"][0] > 0
    assert found["costs"]["saved_a_day"] == pytest.approx(13.2, rel=0.01)
    assert found["costs"]["million_samples"] == pytest.approx([4.77, 3.82], rel=0.01)
    ended(as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["energy"], found["why_no_energy"], found["costs"]) == (None, "", None)


class MeteredTraining(Metered, Training):
    """At 300 W."""


def test_a_tune_says_what_its_proof_took_and_what_the_best_saves():
    tune = tuning("channels_last", "precision", energy=True)
    Conducted(tune, MeteredTraining(faster_in_nhwc, power_w=lambda _: 300.0)).run()
    found = document(tune, Snapshot(workload="encdec"), price=2.75)
    assert found.energy is not None
    assert found.energy.change == pytest.approx(0.63 - 1, abs=0.01)
    assert found.costs is not None
    assert found.costs.saved_a_day == pytest.approx(66 * (1 - 0.63), rel=0.03)
    first = found.costs.million_samples[0]
    assert first == pytest.approx(2.75 / 3600 * 0.050 / 8 * 1e6, rel=0.02)
    said = "\n".join(lines(tune, (), 2.75))
    assert "energy of a sample: start 1.8" in said
    assert "; best saves 2" in said


# ── what is refused ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("price", ["0", "-1", "nan", "inf", "", "free"])
def test_a_price_of_nothing_is_refused_in_one_line(price):
    parser = load("ab").parser()
    said = price or "''"
    with pytest.raises(UsageError, match=f"--price {said} is not valid; valid: a number from"):
        parser.parse_args(["encdec", "--lever", "pipelined=off,on", f"--price={price}"])


def test_the_cost_of_the_instruments_has_no_energy():
    with pytest.raises(UsageError, match="--energy does not go with --no-instruments"):
        of_instruments(Namespace(energy=True, no_instruments=True))
