"""Time from a key to the screen's answer, while a training of 300 steps/s is shown.

The real program in a terminal of 120×40, over the scripted worker: real pipes, no torch. `5` and
`4` move the focus, and the panel that has it gets a heavy frame: that is the answer. In turns with
a Textual app that does nothing but answer: so much of it is the machine's and Textual's.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time

import pexpect
from in_terminal import ROOT

WORKER = "from tests import worker_double as w; w.STEP_S = 1 / 300; raise SystemExit(w.main())"
PROGRAM = f"""
import sys
from functools import partialmethod
from gpudash.cli.main import main
from gpudash.run.session import Session
from gpudash.run.workload_process import WorkloadProcess, job_of
def start(plan):
    return job_of(plan, WorkloadProcess(plan, ("-c", {WORKER!r})))
Session.__init__ = partialmethod(Session.__init__, start_source=start)
sys.exit(main(["--device", "cpu"]))
"""
EMPTY = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    BINDINGS = [("1", "say('1')"), ("5", "say('5')")]
    def compose(self):
        yield Static("training")
    def action_say(self, key):
        self.query_one(Static).update("━" + {"1": "¹", "5": "⁵"}[key])
Empty().run()
"""
ENVIRONMENT = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONPATH": str(ROOT)}


def answers_ms(program: str, keys: int) -> list[float]:
    """Return what each key took, pressed at moments that have nothing to do with the drawing."""
    screen = pexpect.spawn(
        sys.executable,
        ["-c", program],
        env=os.environ | ENVIRONMENT,
        dimensions=(40, 120),
        encoding="utf-8",
        timeout=20,
    )
    screen.delaybeforesend = None
    screen.expect("training")
    found = []
    for number in range(keys + 1):
        until_s = time.monotonic() + random.uniform(0.2, 0.5)
        while time.monotonic() < until_s:  # what is on its way is read: it answers no key
            screen.expect([".+", pexpect.TIMEOUT], timeout=0.02)
        key, title = ("1", "¹") if number % 2 else ("5", "⁵")
        begin_s = time.monotonic()
        screen.send(key)
        screen.expect(f"━[^\n]*{title}")
        found.append(1000 * (time.monotonic() - begin_s))
    screen.close(force=True)
    return found[1:]  # the first one draws the other panel's rule for the first time


def main() -> None:
    """Measure and print one JSON line and one for people."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", type=int, default=20, help="of each program in a round")
    options = parser.parse_args()
    found, empty = [], []
    for _ in range(options.rounds):
        empty += answers_ms(EMPTY, options.keys)
        found += answers_ms(PROGRAM, options.keys)
    result = {
        "benchmark": "keys",
        "keys": len(found),
        "empty_median_ms": round(statistics.median(empty), 1),
        "empty_p95_ms": round(statistics.quantiles(empty, n=20)[-1], 1),
        "median_ms": round(statistics.median(found), 1),
        "p95_ms": round(statistics.quantiles(found, n=20)[-1], 1),
        "max_ms": round(max(found), 1),
    }
    print(json.dumps(result))
    print(
        f"a key is answered within {result['p95_ms']} ms in 95 % of cases (target 50 ms), "
        f"{result['median_ms']} ms in half of them; an empty app answers within "
        f"{result['empty_p95_ms']} and {result['empty_median_ms']} ms"
    )


if __name__ == "__main__":
    main()
