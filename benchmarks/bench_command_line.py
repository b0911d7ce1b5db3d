"""What the command line keeps someone waiting for: its help, and TAB after a lever's name.

    python benchmarks/bench_command_line.py

Each is a process, as the installed script starts it, against a Python process that does nothing,
in turn. The time is the processor's, of which a busy machine takes no more than an idle one. A
figure beyond its bound makes the exit code 1.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys

SCRIPT = "import sys; from gpudash.cli.start import main; sys.exit(main())"
EMPTY = ("-c", "pass")
BOUNDS = {
    ("--help",): 4.0,
    ("__complete", "encdec", "--set", "precision="): 5.0,
    ("__complete", "ab", "--lever", "precision=fp32,"): 5.0,
    ("__complete", "sweep", "--vary", "precision=fp32,"): 5.0,
}
"""What is asked for, and how many times an empty process's time it may take."""


def cpu_s(*arguments: str) -> float:
    """Return the processor's time that a Python process with these arguments takes."""
    cached = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=cached, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure in turn, print the figures. Returns 1 where one is beyond its bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    commands = {asked: ("-c", SCRIPT, *asked) for asked in BOUNDS}
    for command in commands.values():
        cpu_s(*command)  # compiles what is imported
    ratios: dict[tuple[str, ...], list[float]] = {asked: [] for asked in BOUNDS}
    for _ in range(rounds):
        for asked, command in commands.items():
            ratios[asked].append(cpu_s(*command) / cpu_s(*EMPTY))
    missed = False
    for asked, found in ratios.items():
        ratio, bound = statistics.median(found), BOUNDS[asked]
        missed |= ratio > bound
        line = " ".join(("gpudash", *asked))
        print(f"{line}: {ratio:.2f} times an empty Python process (bound {bound:g})")
        print(json.dumps({"command": line, "ratio": round(ratio, 3), "bound": bound}))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
