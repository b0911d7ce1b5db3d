"""What exporters cost: the time of a scrape, and the CPU time of each beside a run.

python benchmarks/bench_exporters.py
python benchmarks/bench_exporters.py --prometheus /usr/bin/prometheus

A run has two rows a second; each rank has a GPU, and all values of a row. Between two rows come
three readings of each GPU, for exporters that take them. The second command has a Prometheus scrape
a training, stops that training, and says how long the alert took.
"""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from urllib.request import urlopen

import psutil

from gpudash.metrics import METRICS
from gpudash.protocol.envelope import Envelope
from gpudash.protocol.readings import GpuReading
from gpudash.recording.gpu_interval import GpuInterval
from gpudash.recording.intervals import Interval
from gpudash.recording.log import Origin
from gpudash.recording.rank_steps import RankSteps
from gpudash.sinks.sink import Sink, opener

ROWS = 600
ROW_S = 0.5
READINGS = 3
SCRAPES = 200
ROOT = Path(__file__).parents[1]
RULES = ROOT / "docs" / "guide" / "exporters" / "alerts.yml"
SCRIPT = """
import time
import torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters())
while True:
    time.sleep(0.01)
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def values(kind: tuple[str, ...]) -> dict[str, float | str]:
    """Return a value of each metric of these kinds."""
    return {
        name: "none" if metric.csv == "text" else 1.2345
        for name, metric in METRICS.items()
        if metric.kind in kind and metric.csv != "pairs" and name not in ("gpu_uuid", "gpu_index")
    }


def row(number: int, ranks: int, began_s: float) -> Interval:
    """Return a row with everything."""
    from_s = began_s + number * ROW_S
    known = values(("step", "phase", "host"))
    return Interval(
        began_s=from_s,
        ended_s=from_s + ROW_S,
        workload="encdec",
        segment=0,
        settings={f"lever_{place}": "off" for place in range(12)},
        gpus=tuple(
            GpuInterval(index=place, uuid=f"GPU-{place}", values=values(("gpu",)))
            for place in range(ranks)
        ),
        ranks=tuple(
            RankSteps(
                rank=rank,
                step=120 * (number + 1),
                steps=120,
                samples=960,
                timed=120,
                finished_s=from_s + ROW_S,
                values=known,
            )
            for rank in range(ranks)
        ),
        world_size=ranks,
        train_s=ROW_S,
    )


def readings(number: int, ranks: int, began_s: float) -> Iterator[Envelope]:
    """Yield the readings of the GPUs in a row."""
    for part in range(READINGS):
        at_s = began_s + (number + part / READINGS) * ROW_S
        for place in range(ranks):
            reading = GpuReading(
                at_s=at_s, index=place, uuid=f"GPU-{place}", name="H200", values=values(("gpu",))
            )
            yield Envelope(source="telemetry", seq=number, sent_s=at_s, body=reading)


def opened(name: str, target: str, began_s: float) -> Sink:
    """Return a sink of a run that began then."""
    origin = Origin(
        began_s=began_s, began_utc=datetime.now(UTC), interval_s=ROW_S, command=("gpudash",)
    )
    return opener(name)(target, origin, force=True)


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def scrapes_ms(ranks: int) -> list[float]:
    """Return the times of scrapes over the network."""
    port, began_s = free_port(), time.monotonic() - ROW_S
    sink = opened("prometheus", str(port), began_s)
    sink.take(row(0, ranks, began_s))
    found = []
    for _ in range(SCRAPES):
        from_s = time.perf_counter()
        connection = HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text"})
        connection.getresponse().read()
        found.append((time.perf_counter() - from_s) * 1e3)
    sink.close(None)
    return found


@contextmanager
def collector() -> Iterator[str]:
    """Yield the address of a process that takes whatever it is sent."""
    code = (
        "from http.server import BaseHTTPRequestHandler as H, HTTPServer\n"
        "def do_POST(self):\n"
        "    self.rfile.read(int(self.headers['Content-Length']))\n"
        "    self.send_response(200)\n    self.end_headers()\n"
        "H.do_POST = do_POST\nH.log_message = lambda *_: None\n"
        "server = HTTPServer(('127.0.0.1', 0), H)\n"
        "print(server.server_port, flush=True)\nserver.serve_forever()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    yield f"127.0.0.1:{int(process.stdout.readline())}"
    process.kill()
    process.wait()


def share_pct(name: str, target: str, ranks: int) -> float:
    """Return the CPU time that a sink's rows take, in percent of a core."""
    began_s = time.monotonic()
    sink = opened(name, target, began_s)
    items: list[Envelope | Interval] = []
    for number in range(ROWS):
        items += readings(number, ranks, began_s) if sink.every_reading else ()
        items.append(row(number, ranks, began_s))
    from_s = time.process_time()
    for one in items:
        sink.take(one)
    spent_s = time.process_time() - from_s
    sink.close(None)
    return 100 * spent_s / (ROWS * ROW_S)


def seconds_to_alert(prometheus: str) -> float:
    """Return how long after its last step a stopped training has raised its alert."""
    port, web = free_port(), free_port()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        (folder / "prometheus.yml").write_text(
            f"global: {{scrape_interval: 5s}}\nrule_files: [{RULES}]\nscrape_configs:\n"
            f"  - job_name: gpudash\n    static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
        )
        words = ("run", "--watch", "-q", "--to", f"prometheus:{port}", "train.py")
        run = subprocess.Popen([sys.executable, "-m", "gpudash", *words], cwd=folder)
        server = subprocess.Popen(
            [
                prometheus,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{web}",
                "--log.level=error",
            ]
        )
        try:
            time.sleep(30)
            assert not firing(web)
            children = psutil.Process(run.pid).children(recursive=True)
            (training,) = (one for one in children if "train.py" in one.cmdline())
            training.send_signal(SIGSTOP)
            from_s = time.monotonic()
            while not firing(web):
                time.sleep(0.1)
            took_s = time.monotonic() - from_s
            training.send_signal(SIGCONT)
            training.terminate()
        finally:
            server.terminate()
            server.wait()
            run.terminate()
            run.wait()
    return took_s


def firing(port: int) -> bool:
    """Return whether Prometheus holds the training for silent."""
    with urlopen(f"http://127.0.0.1:{port}/api/v1/alerts") as answer:
        alerts = json.load(answer)["data"]["alerts"]
    return any(
        one["state"] == "firing" and one["labels"]["alertname"] == "GpudashTrainingSilent"
        for one in alerts
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--prometheus", help="the program, for the time to an alert")
    prometheus = parser.parse_args().prometheus
    if prometheus is not None:
        print(f"alert after {seconds_to_alert(prometheus):.1f} s")
        return
    print("| ranks and GPUs | scrape, median ms | worst of 200 |")
    for ranks in (1, 8, 64):
        found = scrapes_ms(ranks)
        print(f"| {ranks} | {statistics.median(found):.1f} | {max(found):.1f} |")
    print("| exporter | % of a core, 1 rank and GPU | 8 | 64 |")
    with tempfile.TemporaryDirectory() as folder, collector() as address:
        targets = {
            "prometheus": str(free_port()),
            "otlp": address,
            "tensorboard": folder,
            "trace": f"{folder}/trace.json",
        }
        for name, target in targets.items():
            shares = (f"{share_pct(name, target, ranks):.2f}" for ranks in (1, 8, 64))
            print(f"| {name} | {' | '.join(shares)} |")


if __name__ == "__main__":
    main()
