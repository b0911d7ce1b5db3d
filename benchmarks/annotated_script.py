"""Runs a script with a profile of torch.profiler's over some of its seconds, for a comparison.

    python benchmarks/annotated_script.py OUT.json SCRIPT.py ARGS …

It knows nothing of gpudash, and is started under `gpudash run` by bench_public_scripts.py. Beside
what torch annotates itself (an optimizer's step, the wait for a DataLoader's batch) it annotates
the outermost calls of modules that have parameters, backward passes, and the updates of optimizers
that are not torch's. OUT.json gets the annotations of the profiled seconds by the monotonic clock,
and the moment of each update of the whole run.
"""

import importlib
import json
import os
import runpy
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, record_function

BEGIN_S, SECONDS = 2.0, 3.0
"""The profile begins so long after the first update, and lasts so long."""
MARK = "bench: now"
OWN_OPTIMIZERS = (
    ("fastai.optimizer", "Optimizer", "step"),
    ("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply"),
)
TORCHS = ("Optimizer.step#", "enumerate(DataLoader)#")


class Run:
    """What is seen of the script."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._profile: Any = None
        self._is_over = False
        self._calls = 0  # depth
        self._thread = threading.get_ident()
        self._marked_s = 0.0
        self.updates_s: list[float] = []
        self.found: dict[str, Any] = {"spans": [], "began_s": 0.0, "ended_s": 0.0}

    def updated(self, *_: object) -> None:
        """Note an update of the weights; begin or end the profile."""
        if threading.get_ident() != self._thread:
            return
        now_s = time.monotonic()
        self.updates_s.append(now_s)
        if self._is_over:
            return
        if self._profile is None and now_s > self.updates_s[0] + BEGIN_S:
            self._profile = profile(activities=[ProfilerActivity.CPU])
            self._profile.start()
            self._marked_s = time.monotonic()
            with record_function(MARK):
                pass
            self.found["began_s"] = time.monotonic()
        elif self._profile is not None and now_s > self.found["began_s"] + SECONDS:
            self.end_profile(now_s)

    def end_profile(self, now_s: float) -> None:
        """Keep what was profiled until then."""
        if self._profile is None or self._is_over:
            return
        self._is_over = True
        self.found["ended_s"] = now_s
        self._profile.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            self._profile.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
        mark = next(one for one in events if one.get("name") == MARK)
        spans = [
            (one["name"], *(self._marked_s + (at - mark["ts"]) / 1e6 for at in _ends(one)))
            for one in events
            if one.get("cat") == "user_annotation" and one["tid"] == mark["tid"]
        ]
        self.found["spans"] = sorted(spans, key=lambda span: span[1])

    def annotated(self, name: str, function: Callable[..., Any], *, updates: bool = False) -> Any:
        """Return the function with its calls annotated."""

        def called(*args: Any, **kwargs: Any) -> Any:
            with record_function(name):
                result = function(*args, **kwargs)
            if updates:
                self.updated()
            return result

        return called

    def annotate_calls(self) -> None:
        """Annotate the outermost calls of modules that have parameters."""
        call: Any = nn.Module.__call__
        run = self

        def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if run._calls or threading.get_ident() != run._thread:
                return call(module, *args, **kwargs)
            weight = next(module.parameters(), None)
            if weight is None:
                return call(module, *args, **kwargs)
            learns = torch.is_grad_enabled() and any(
                one.requires_grad for one in module.parameters()
            )
            run._calls += 1
            try:
                with record_function(f"call {'to learn' if learns else 'alone'} {id(module)}"):
                    return call(module, *args, **kwargs)
            finally:
                run._calls -= 1

        nn.Module.__call__ = called  # type: ignore[method-assign]

    def write(self) -> None:
        """Write all that was seen."""
        self.end_profile(time.monotonic())
        self._out.write_text(json.dumps(self.found | {"updates_s": self.updates_s}))


def _ends(event: dict[str, Any]) -> tuple[float, float]:
    return event["ts"], event["ts"] + event["dur"]


def main() -> None:
    """Run the script as if it had been started alone."""
    out, script, *args = sys.argv[1:]
    run = Run(Path(out).absolute())
    register_optimizer_step_post_hook(run.updated)
    bare = os.environ.get("BENCH_UPDATES") == "backward"
    backward: Any = run.annotated("backward", torch.Tensor.backward, updates=bare)
    torch.Tensor.backward = backward  # type: ignore[method-assign]
    run.annotate_calls()
    sys.path[1:1] = [str(Path(one).absolute()) for one in os.environ.get("BENCH_PATH", "").split()]
    for library in os.environ.get("BENCH_LIBRARIES", "").split():
        importlib.import_module(library)
    for module, owner, name in OWN_OPTIMIZERS:
        kind: Any = getattr(sys.modules.get(module), owner, None)
        if kind is not None:
            setattr(kind, name, run.annotated(TORCHS[0], getattr(kind, name), updates=True))
    sys.argv = [script, *args]
    sys.path[0] = str(Path(script).absolute().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        run.write()


if __name__ == "__main__":
    main()
