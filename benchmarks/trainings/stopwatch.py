"""What the trainings of this folder share: is the cause planted, and a clock of their own."""

import json
import os
import time

import torch

PLANT = os.environ.get("PLANT", "1") == "1"
SECONDS = float(os.environ.get("SECONDS", "4"))
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
WARM_UP = 20
"""Steps before the clock starts, at least."""
if not ON_GPU:
    torch.set_num_threads(1)  # small nets: more threads would wait for each other


class Stopwatch:
    """Times whole periods of steps, and prints their mean once the seconds are over."""

    def __init__(self, period=1):
        self.runs = True
        self._steps, self._began_s = 0, 0.0
        self._period = period
        self._warm_up = period * -(-WARM_UP // period)

    def step(self):
        """Note that a step has ended; return whether there is time for more."""
        self._steps += 1
        timed = self._steps - self._warm_up
        if timed == 0:
            self._began_s = now_s()
        elif timed > 0 and timed % self._period == 0:
            self._end_if_over(timed)
        return self.runs

    def _end_if_over(self, timed):
        if not self.runs or time.perf_counter() - self._began_s < SECONDS:
            return
        took_s = now_s() - self._began_s
        print(json.dumps({"step_ms": 1e3 * took_s / timed, "steps": timed}), flush=True)
        self.runs = False


def now_s():
    """Return the time at which all that was launched is done."""
    if ON_GPU:
        torch.cuda.synchronize()
    return time.perf_counter()
