"""Prints a script's number of steps and its weights' digest at the end, if a test asks."""

import hashlib
import os


def say(steps, *modules):
    if "SAY_ENDING" not in os.environ:
        return
    weights = hashlib.md5()
    for module in modules:
        for tensor in module.state_dict().values():
            weights.update(tensor.detach().cpu().numpy().tobytes())
    print(f"steps={steps} weights={weights.hexdigest()}")
