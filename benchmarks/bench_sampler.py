"""Measure the sampler on eight GPUs whose PCIe counters take 20 ms a call.

How late is a sample, and what does the sampler take of a core? The real bindings call the stand-in
for the driver library that the tests compile, so it needs no GPU. The stand-in takes its own share:
it looks the answer up in a file and logs each call. What the same threads take without any GPU is
printed beside.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.telemetry.shim import Driver, build

MEASURE = "--measure"
COUNTER = "nvmlDeviceGetTotalEnergyConsumption"


def main() -> None:
    """Compile the stand-in, and measure with eight GPUs and with none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--energy", action="store_true", help="the ticks of the counters too")
    parser.add_argument(MEASURE, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        measure(arguments.measure, arguments.seconds, energy=arguments.energy)
        return
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        driver = Driver(Path(folder) / "gpu")
        driver.says("gpus 8", *(f"uuid.{number} GPU-{number}" for number in range(8)))
        driver.says("nvmlGpmQueryDeviceSupport.error 3", "quiet 1")
        driver.says("energy.tick_ms 100", "energy.w 300", f"{COUNTER}.delay_ms 2.3")
        driver.says("field.197.delay_ms 20", "field.198.delay_ms 20")
        for gpus in (8, 2, 1, 0):
            command = [sys.executable, "-m", "benchmarks.bench_sampler", MEASURE, str(gpus)]
            subprocess.run(
                [*command, "--seconds", str(arguments.seconds), *["--energy"] * arguments.energy],
                env=driver.environment(library),
                check=True,
            )


def measure(gpus: int, seconds: float, *, energy: bool) -> None:
    """Run the sampler on this many GPUs, and print its figures."""
    from gpudash.protocol.readings import GpuReading
    from gpudash.telemetry.sampler import Sampler
    from gpudash.telemetry.watched_gpu import FAST_S

    stamps: dict[str, list[float]] = {}

    def take(sample: object) -> None:
        if isinstance(sample, GpuReading):
            stamps.setdefault(sample.uuid, []).append(time.monotonic())

    sampler = Sampler(take, energy=energy)
    sampler.start()
    if gpus:
        sampler.watch(os.getpid(), "GPU-0")
        sampler.watch_others({f"GPU-{number}" for number in range(gpus)})
    time.sleep(2)
    stamps.clear()
    began_s, used_s = time.monotonic(), time.process_time()
    time.sleep(seconds)
    used_s, took_s = time.process_time() - used_s, time.monotonic() - began_s
    sampler.stop()
    late = [
        1e3 * (late - early - FAST_S)
        for of_one in stamps.values()
        for early, late in itertools.pairwise(of_one)
    ]
    share = f"{100 * used_s / took_s:.2f} % of a core"
    if late:
        worst = f"a sample is late by {max(late):.1f} ms at most, {median(map(abs, late)):.1f} ms"
        print(f"{gpus} GPUs, {len(late)} samples: {worst} in the median; {share}")
    else:
        print(f"{gpus} GPUs: {share}")


if __name__ == "__main__":
    main()
