"""Share of one core that the dashboard takes at 4 Hz, with and without painting its panels.

The real app in a terminal of 120×40 plays snapshots with series of 600 points of which every
one differs: more than a live run does, whose series grow twice a second. Alternating pairs.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from in_terminal import run

CHILD = """
import json, sys, threading, time
from tests.tui.fake_engine import FakeEngine, training
from gpudash.tui.app import Dashboard
from gpudash.tui.screens.main import MainScreen

kind, out, seconds, rate_hz = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
if kind == "idle":
    MainScreen.show = lambda self, lines=(), rewound=False: None
snapshots = [training(600, moved=0.5 * i) for i in range(40)]

class Playing(FakeEngine):
    def start(self, listener):
        super().start(listener)
        self.play(snapshots, rate_hz)

engine = Playing()
# the script sets the pace, nothing is dropped
app = Dashboard(lambda: engine, engine.plan, rate_hz=rate_hz * 2)

def measure():
    time.sleep(2.5)
    begin, cpu = time.monotonic(), time.process_time()
    time.sleep(seconds)
    share = (time.process_time() - cpu) / (time.monotonic() - begin)
    with open(out, "w") as file:
        json.dump(share, file)
    app.call_from_thread(app.exit)

threading.Thread(target=measure, daemon=True).start()
app.run()
"""


def share(program: Path, out: Path, kind: str, seconds: float, rate_hz: float) -> float:
    """Return the share of one core one run takes, in percent."""
    out.unlink(missing_ok=True)
    ran = run([str(program), kind, str(out), str(seconds), str(rate_hz)])
    if not out.exists():
        sys.exit(f"the app ended early; the end of its output: {ran.output[-2000:]!r}")
    return 100 * float(json.loads(out.read_text(encoding="utf-8")))


def main() -> None:
    """Measure and print one JSON line and one for people."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=4.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program, out = Path(folder) / "child.py", Path(folder) / "share.json"
        program.write_text(CHILD, encoding="utf-8")
        idle, shown = [], []
        for _ in range(options.pairs):
            idle.append(share(program, out, "idle", options.seconds, options.rate))
            shown.append(share(program, out, "shown", options.seconds, options.rate))
    drawing = [s - i for s, i in zip(shown, idle, strict=True)]
    result = {
        "benchmark": "charts",
        "pairs": options.pairs,
        "rate_hz": options.rate,
        "idle_pct": round(statistics.median(idle), 2),
        "shown_pct": round(statistics.median(shown), 2),
        "drawing_pct": round(statistics.median(drawing), 2),
        "shown_pct_max": round(max(shown), 2),
    }
    print(json.dumps(result))
    print(
        f"a running dashboard at {options.rate:g} Hz takes {result['shown_pct']} % of a core "
        f"(target 7 %), {result['idle_pct']} % where it shows nothing new"
    )


if __name__ == "__main__":
    main()
