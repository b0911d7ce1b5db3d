"""Runs all trainings of shapes.py, kinds.py and declared.py, and prints the results of each.

Their processes are forked from one that has imported torch, as importing takes the most time.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
from torch import multiprocessing

from tests.script import declared, kinds, shapes, shapes_libraries  # they add their shapes
from tests.script.shape import train as train_all
from tests.script.toy import import_compiler

MODULE = {name: run.__module__ for name, (run, _) in shapes.SHAPES.items()}
DECLARED = [name for name, module in MODULE.items() if module == declared.__name__]
FOUND = [name for name in MODULE if name not in DECLARED]
SLOW = [name for name in FOUND if MODULE[name] in (kinds.__name__, shapes_libraries.__name__)]
PROCESSES = (
    ("found", [name for name in FOUND if name not in SLOW], {}),
    ("found", SLOW, {"slowly": True}),
    ("found, together", [name for name in FOUND if "compiled" not in name], {"together": True}),
    ("declared", DECLARED, {}),
    ("declared, together", ["after_steps_that_were_found"], {"together": True}),
)


def train(_process, file, names, how):
    torch.set_num_threads(1)  # else two threads may make the pool that a fork has lost, and abort
    Path(file).write_text(json.dumps(train_all(names, **how)))


def main():
    if not torch.cuda.device_count():  # with a GPU that begins CUDA, which no fork outlives
        import_compiler()
    results = {}
    with tempfile.NamedTemporaryFile() as file:
        for name, *of in PROCESSES:  # one at a time, not to slow each other
            multiprocessing.start_processes(train, (file.name, *of), start_method="fork")
            results.setdefault(name, {}).update(json.loads(Path(file.name).read_text()))
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
