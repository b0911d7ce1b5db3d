"""What drawing the dashboard at 4 Hz costs: CPU time of a frame, and its ratio to what it was.

The real app in a terminal, of 120×40 if no other size is asked for, plays snapshots with series of
600 points of which every one differs: more than a live run does, whose series grow twice a second.
It alternates with the dashboard of another revision, which plays the same; it takes about a minute.
"""

import argparse
import io
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from in_terminal import ROOT, run
from playing import PLAYING
from ratios import show

BEFORE = "e0a4f5c"
"""The last revision before the screen with one answer on top."""
WARM_UP_S = 2.0
CHILD = f"""{PLAYING}
import sys
from pathlib import Path

out, warm_up_s, seconds, rate_hz = Path(sys.argv[1]), *map(float, sys.argv[2:])
engine = Playing([training(600, moved=0.5 * i) for i in range(40)], rate_hz)
# the script sets the pace, nothing is dropped
app = Dashboard(lambda: engine, engine.plan, rate_hz=rate_hz * 2)

def measure():
    time.sleep(warm_up_s)
    begin, cpu = time.monotonic(), time.process_time()
    time.sleep(seconds)
    out.write_text(str((time.process_time() - cpu) / (time.monotonic() - begin)))
    app.call_from_thread(app.exit)

threading.Thread(target=measure, daemon=True).start()
app.run()
"""


def share(
    folder: Path, source: Path, seconds: float, rate_hz: float, size: tuple[int, int]
) -> float:
    """Return the share of one core that the dashboard of this source takes, in percent."""
    program, out = folder / "child.py", folder / "share"
    program.write_text(CHILD, encoding="utf-8")
    out.unlink(missing_ok=True)
    arguments = map(str, (program, out, WARM_UP_S, seconds, rate_hz))
    ran = run(list(arguments), source=source, columns=size[0], rows=size[1])
    if not out.exists():
        sys.exit(f"the app ended early; the end of its output: {ran.output[-2000:]!r}")
    return 100 * float(out.read_text(encoding="utf-8"))


def source_of(revision: str, folder: Path) -> Path:
    """Return a folder with the source of this revision."""
    command = ["git", "-C", str(ROOT), "archive", revision, "gpudash", "workloads", "tests"]
    archived = subprocess.run(command, capture_output=True, check=False)
    if archived.returncode:
        why = archived.stderr.decode(errors="replace").strip()
        sys.exit(f"--before {revision}: {why}; a revision of this repository is needed")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main() -> None:
    """Measure; print one line for people and one of JSON for each claim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.5)
    parser.add_argument("--rate", type=float, default=4.0)
    parser.add_argument("--size", type=int, nargs=2, default=(120, 40), metavar=("COLUMNS", "ROWS"))
    parser.add_argument("--before", default=BEFORE, metavar="REVISION")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before = source_of(options.before, folder / "before")
        olds, news = [], []
        for _ in range(options.pairs):
            olds.append(share(folder, before, options.seconds, options.rate, options.size))
            news.append(share(folder, ROOT, options.seconds, options.rate, options.size))
    show(f"a frame, to one of {options.before}", news, olds)
    result = {
        "benchmark": "charts",
        "pairs": options.pairs,
        "rate_hz": options.rate,
        "shown_pct": round(statistics.median(news), 2),
        "shown_pct_max": round(max(news), 2),
        "frame_ms": round(10 * statistics.median(news) / options.rate, 2),
    }
    print(
        f"at {options.rate:g} Hz the dashboard takes {result['shown_pct']} % of a core "
        f"(target 5 %), a frame {result['frame_ms']} ms"
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
