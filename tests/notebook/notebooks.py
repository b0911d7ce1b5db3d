"""Notebooks that tests drive, and dashboards over them without a screen."""

import json
import os
import signal
import subprocess
import time
from contextlib import closing, contextmanager
from pathlib import Path

from gpudash.cli.headless import News
from gpudash.protocol.commands import Plan
from gpudash.run.job import TrainingJob
from gpudash.run.runs import living
from gpudash.run.session import Session
from tests.waiting import until

KERNEL = Path(__file__).with_name("kernel.py")
MODEL = """
import hashlib, time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(2, (64,))), 8, shuffle=True)
def fit(steps, seconds=0.005):
    while steps > 0:
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            time.sleep(seconds)
            steps -= 1
            if steps <= 0:
                break
def digest():
    weights = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
    print(hashlib.sha256(weights).hexdigest())
"""
LOAD, UNLOAD, SHOW = "%load_ext gpudash", "%unload_ext gpudash", "%gpudash"


class Notebook:
    """A kernel with cells."""

    def __init__(self, python, folder, name, **environment):
        self._process = subprocess.Popen(
            [python, str(KERNEL)],
            cwd=folder,
            env=os.environ | {"JPY_SESSION_NAME": f"{folder}/{name}"} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = int(self.run("print(__import__('os').getpid())"))

    def begin(self, cell):
        """Begin to run a cell."""
        self._process.stdin.write(json.dumps(cell) + "\n")
        self._process.stdin.flush()

    def end(self):
        """Return what came of the cell that was begun."""
        return json.loads(self._process.stdout.readline())

    def run(self, *cells):
        """Run cells; return what the last one printed. None has raised."""
        for cell in cells:
            self.begin(cell)
            came = self.end()
            assert came["error"] is None, came
        return came["printed"]

    def show(self):
        """Return the text and the pictures of `%gpudash`."""
        time.sleep(0.2)  # who waits for an answer would have thousands of pictures drawn
        self.begin(SHOW)
        came = self.end()
        return came["printed"], [one["image/svg+xml"] for one in came["shown"]]

    def train(self):
        """Run a cell of 200 steps; return the text of `%gpudash` after it."""
        self.run("fit(200)")
        return self.show()[0]

    def interrupt(self):
        os.kill(self.pid, signal.SIGINT)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Dashboard:
    """A dashboard over a notebook, as `gpudash attach` opens it."""

    def __init__(self, notebook):
        (run,) = (one for one in living() if one.facts.pid == notebook.pid)
        name, held = run.facts.name, run.open()
        self.source = TrainingJob(name, held, run.place)
        self.news = News()
        self.session = Session(
            Plan(workload=name, settings={}),
            beside=(),
            start_source=lambda _plan: self.source,
        )
        self.session.start(self.news)

    def wait(self, condition):
        """Wait for a snapshot of which this is true, and return it."""
        return until(
            lambda: condition(self.news.snapshot) and self.news.snapshot,
            lambda: self.news.snapshot.status,
        )

    def close(self):
        self.session.leave()
        self.session.close()
        self.source.close()


@contextmanager
def attached(notebook):
    """Have a dashboard for a while."""
    with closing(Dashboard(notebook)) as dashboard:
        yield dashboard
