"""Time from the start of the process to the first painted frame, and its peak memory.

The real program, from its command line on, against an empty Textual app, in a terminal of
120×40, in alternating pairs. The dashboard's frame counts when it shows its content. Both
are left by Ctrl+C; a run with a scripted engine plays a training for the memory.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from in_terminal import Ran, run
from playing import PLAYING

EMPTY = """
from textual.app import App
from textual.binding import Binding
class Empty(App):
    BINDINGS = [Binding("ctrl+c", "quit", priority=True)]
Empty().run()
"""
REAL = ["-m", "gpudash", "--device", "cpu"]
TRAINING = f"""{PLAYING}
engine = Playing([training(600, moved=0.5 * i) for i in range(8)], 4.0)
app = Dashboard(lambda: engine, engine.plan)
threading.Timer(8.0, lambda: app.call_from_thread(app.exit)).start()
app.run()
"""


def painted_empty(output: bytes) -> bool:
    """Return whether a frame has begun: the cursor goes home before its first row."""
    return b"\x1b[1;1H" in output


def painted_real(output: bytes) -> bool:
    """Return whether the lever panel, one of the last parts, is on screen."""
    return "¹lever".encode() in output


def seconds(ran: Ran) -> float:
    """Return the time of the first frame; there must be one."""
    if ran.seen_s is None:
        sys.exit(f"no frame was painted; the end of the output: {ran.output[-2000:]!r}")
    return ran.seen_s


def main() -> None:
    """Measure and print one JSON line and one for people."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        programs = {"real": REAL}
        for name, source in {"empty": EMPTY, "playing": TRAINING}.items():
            path = Path(folder) / f"{name}.py"
            path.write_text(source, encoding="utf-8")
            programs[name] = [str(path)]
        for name, painted in (("empty", painted_empty), ("real", painted_real)):
            run(programs[name], until=painted)  # warms the file cache
        empty, real = [], []
        for _ in range(pairs):
            empty.append(seconds(run(programs["empty"], until=painted_empty)))
            real.append(seconds(run(programs["real"], until=painted_real)))
        rss = run(programs["playing"]).peak_rss_mib
    ratios = [r / e for r, e in zip(real, empty, strict=True)]
    result = {
        "benchmark": "first_paint",
        "pairs": pairs,
        "empty_ms": round(statistics.median(empty) * 1000),
        "dashboard_ms": round(statistics.median(real) * 1000),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
        "peak_rss_mib": round(rss, 1),
    }
    print(json.dumps(result))
    print(
        f"first frame {result['dashboard_ms']} ms, {result['ratio']}× an empty app's "
        f"(target 1.3×); peak memory {result['peak_rss_mib']} MiB (target 60 MiB)"
    )


if __name__ == "__main__":
    main()
