"""Serial against two streams over the batch sizes: the source's table, in one process.

    python benchmarks/bench_pipelining.py --batch-sizes 4,8,16,32,64,128 --pairs 10

Short blocks of both take turns, in an order drawn for each pair, each between borders at which
the device has finished; the first steps of a block are left out.
"""

import argparse
import time

from ratios import ratio_with_interval, show

from gpudash.compare.paired_t import block_order
from workloads import CATALOGUE
from workloads.training import Training, pick_device

DROPPED_STEPS = 3


def block_ms(training: Training, steps: int) -> float:
    """Return the milliseconds a step takes, over `steps` steps."""
    for _ in range(DROPPED_STEPS):
        training.step()
    training.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        training.step()
    training.synchronize()
    return (time.perf_counter() - began) / steps * 1e3


def switch(training: Training, pipelined: str) -> None:
    """Drain and switch."""
    training.drain()
    if training.settings["pipelined"] != pipelined:
        training.change({"pipelined": pipelined})


def main() -> None:
    """Print one line a batch size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-sizes", default="4,8,16,32,64,128")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--block-s", type=float, default=0.25, help="seconds a block lasts")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", default="resident")
    arguments = parser.parse_args()
    settings = {"data": arguments.data, "batch_size": "1"}
    training = Training(CATALOGUE["encdec"], settings, pick_device(arguments.device))
    print("batch  serial steps/s  two streams steps/s  change  95 % interval")
    for batch_size in arguments.batch_sizes.split(","):
        training.drain()
        if training.settings["batch_size"] != batch_size:
            training.change({"batch_size": batch_size})
        switch(training, "off")
        block_ms(training, 10)  # warm up
        steps = max(3, round(arguments.block_s * 1e3 / block_ms(training, 10)))
        serial: list[float] = []
        streams: list[float] = []
        for order in block_order(arguments.pairs, seed=0):
            for pipelined in ("off", "on") if order == "AB" else ("on", "off"):
                switch(training, pipelined)
                times = streams if pipelined == "on" else serial
                times.append(block_ms(training, steps))
        rates = [1e3 * len(times) / sum(times) for times in (serial, streams)]
        gain, low, high = ratio_with_interval(serial, streams)
        print(
            f"{batch_size:>5}  {rates[0]:14.1f}  {rates[1]:19.1f}  {(gain - 1) * 100:+5.1f} %"
            f"  [{(low - 1) * 100:+.1f}, {(high - 1) * 100:+.1f}]"
        )
        show(
            f"two streams over serial, steps/s, batch {batch_size}",
            serial,
            streams,
            serial_steps_per_s=rates[0],
            streams_steps_per_s=rates[1],
            steps_a_block=steps,
        )
    training.close()


if __name__ == "__main__":
    main()
