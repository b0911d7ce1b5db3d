"""All figures of one recording say the rate that the training's own clock says."""

import csv
import re
from contextlib import closing

import pytest

from gpudash.compare.runs.run import read_run
from gpudash.ranks.recent import NOW_S
from gpudash.recording.csv_reader import open_recording
from gpudash.recording.intervals import Interval
from gpudash.run.replayed import replayed
from gpudash.sinks.current import Current
from gpudash.statistics import WARMUP_STEPS
from tests.cli.conftest import GPUDASH, script
from tests.waiting import done

STEPS, SAMPLES, PRICE = 400, 4, 1000.0
DECLARED = f"""
import time
import torch
import gpudash

for number in range({STEPS}):
    with gpudash.step(samples={SAMPLES}):
        time.sleep(0.004)
    print(time.monotonic())
    time.sleep(0.006)
"""


def rate(ends_s):
    return (len(ends_s) - 1) / (ends_s[-1] - ends_s[0])


def of_rows(rows):
    steps, train_s = (sum(float(row[name]) for row in rows) for name in ("steps", "train_s"))
    return steps / train_s


def exported(path):
    with closing(open_recording(path)) as reader:
        current = Current(reader.origin)
        for item in reader:
            if isinstance(item, Interval):
                current.take(item)
    counted = {of.name: points for of, points in current.families(current.at_s) if of.is_counter}
    steps, train_s = (counted[f"gpudash.{name}"][0].value for name in ("steps", "train"))
    return steps / train_s


def test_what_lies_between_declared_steps_is_in_every_rate(private, with_torch):
    words = ("--record", "r.csv", "--interval", "0.1", "--price", str(PRICE))
    python = with_torch / "bin" / "python"
    run = done(*GPUDASH, "run", *words, "--", python, script(private, DECLARED))
    ends_s = [float(line) for line in run.stdout.split()]
    whole, warm = rate(ends_s), rate(ends_s[WARMUP_STEPS - 1 :])
    (line,) = re.findall(rf"{STEPS} steps, ([\d.]+) steps/s", run.stderr)
    (cost,) = re.findall(r"a million samples cost ([\d.,]+)", run.stderr)
    path = private / "r.jsonl"
    shown = replayed(path).snapshot
    (history,), (compared,) = shown.results, read_run(path).measured
    with (private / "r.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if float(row["train_s"])]
    in_hours = PRICE / 3600 / float(cost.replace(",", "")) * 1e6 / SAMPLES
    newest = rate([end_s for end_s in ends_s if end_s > ends_s[-1] - NOW_S])
    figures = {
        "line": float(line) / whole,
        "report": replayed(path).steps_per_s / whole,
        "money": in_hours / whole,
        "CSV": of_rows(rows) / whole,
        "exporters": exported(path) / whole,
        "history": history.steps_per_s / warm,
        "samples in the history": history.samples_per_s / SAMPLES / warm,
        "compare": compared.steps_per_s / warm,
        "screen": shown.steps_per_s / newest,
    }
    # what lies between makes more than half of a step; rows hold the exit of the process, too
    assert figures == pytest.approx(dict.fromkeys(figures, 1.0), abs=0.1)
