"""Exporters beside a run: current while it trains, and harmless when they are refused."""

import csv
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gpudash.cli.options import OF_A_RUN
from tests import waiting, worker_double
from tests.cli.conftest import Refused
from tests.sinks.test_otlp import Collector
from tests.sinks.test_prometheus import samples, scrape
from tests.waiting import free_port

ENDLESS = ("--interval", "0.1", "--device", "cpu")
Process = subprocess.Popen[str]


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.stop()


def started(folder: Path, *arguments: str) -> Process:
    return subprocess.Popen(
        worker_double.gpudash(*arguments, *ENDLESS),
        cwd=folder,
        env=worker_double.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def trained(port: int) -> float:
    """Steps that a scrape tells; 0 before anybody listens."""
    try:
        text = scrape(port)[1]
    except OSError:
        return 0
    return samples(text_string_to_metric_families(text)).get("gpudash_steps_total", 0)


def ended(process: Process) -> tuple[int, str]:
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=waiting.PATIENCE_S)
    return process.returncode, said


def test_all_of_them_beside_a_recording(tmp_path: Path, collector: Collector) -> None:
    port = free_port()
    to = (
        f"prometheus:{port}",
        f"otlp:{collector.address}",
        "tensorboard:board",
        "trace:run.trace.json",
        "csv:rows.csv",
        "jsonl:rows.jsonl",
    )
    assert [one.partition(":")[0] for one in sorted(to)] == sorted(OF_A_RUN)
    words = [word for one in to for word in ("--to", one)]
    (tmp_path / "rows.csv").touch()
    process = started(tmp_path, "-q", "--record", "run.csv", "--force", *words)
    first = waiting.until(lambda: trained(port))
    waiting.until(lambda: trained(port) > first)
    assert ended(process) == (0, "")
    own = {"time_s": "", "wall_time_utc": ""}  # both clocks are read as each file begins
    recorded, rows = (
        [row | own for row in csv.DictReader((tmp_path / name).open())]
        for name in ("run.csv", "rows.csv")
    )
    assert rows == recorded
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").open()]
    assert [row["steps"] for row in rows] == [int(row["steps"]) for row in recorded]
    steps = sum(row["steps"] for row in rows)
    sent = collector.metrics()["gpudash.steps"].sum.data_points[0].as_double
    assert steps == sent
    found = EventAccumulator(str(tmp_path / "board"), size_guidance={"scalars": 0}).Reload()
    assert sum(one.value for one in found.Scalars("step/steps")) == steps
    events = json.loads((tmp_path / "run.trace.json").read_text())["traceEvents"]
    assert sum(one["args"]["value"] for one in events if one["name"] == "steps") == steps


def test_a_collector_that_goes_away_leaves_the_recording_whole(tmp_path: Path) -> None:
    collector = Collector()
    process = started(tmp_path, "-q", "--record", "run.csv", "--to", f"otlp:{collector.address}")
    waiting.until(lambda: collector.got)
    collector.stop()
    code, said = ended(process)
    assert code == 1
    assert said == f"gpudash: otlp: {collector.address} takes nothing: connection refused\n"
    assert json.loads((tmp_path / "run.json").read_text())["complete"]


@pytest.mark.parametrize("name", ["prometheus", "otlp", "tensorboard"])
def test_one_that_is_refused_is_one_line_before_anything_trains_or_is_written(
    name: str, called_with_double: None, private: Path, refused: Refused
) -> None:
    (private / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        targets = {
            "prometheus": str(taken.getsockname()[1]),
            "otlp": f"localhost:{free_port()}",
            "tensorboard": "file",
        }
        words = ["--to", "csv:rows.csv", "--to", "trace:a.json", "--to", f"{name}:{targets[name]}"]
        assert refused("--record", "run.csv", *words).startswith("gpudash: cannot ")
    assert [one.name for one in private.iterdir()] == ["file"]


TRACKED = """
import torch, wandb
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while "gpudash/step" not in wandb.last:
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    wandb.log({"loss": 1.0})
print(sorted(name for name in wandb.last if not name.startswith("gpudash/")))
print(wandb.steps == wandb.rows, wandb.last["gpudash/step/steps_per_s"] > 0)
"""
WANDB = """
import sys
run, last, row, steps, rows = sys.modules[__name__], {}, {}, 0, 0
def define_metric(*_, **__): pass
def log(values, commit=True):
    global last, row, steps, rows
    row = {**row, **values}
    rows += "loss" in values
    if commit:
        last, row, steps = row, {}, steps + 1
"""


def test_the_run_that_a_script_has_open_gets_what_is_measured(
    private: Path, with_torch: Path
) -> None:
    (private / "train.py").write_text(TRACKED)
    (private / "wandb.py").write_text(WANDB)
    ran = waiting.done(
        *(sys.executable, "-m", "gpudash", "run", "--watch", "--to", "wandb", "train.py"),
        env=worker_double.environment(VIRTUAL_ENV=str(with_torch)),
    )
    assert ran.stdout.splitlines() == ["['loss']", "True True"], ran.stderr


@pytest.mark.parametrize("words", [["encdec", "--to", "wandb"], ["run", "--to", "wandb:x", "a.py"]])
def test_only_a_script_has_a_run_open_and_names_none(words: list[str], refused: Refused) -> None:
    named = words[words.index("--to") + 1]
    assert refused(*words).startswith(f"gpudash: --to '{named}' is not valid; valid:")
