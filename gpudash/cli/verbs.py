"""The verbs, a module each: `VERB` says what it takes, and `main` does it.

What each is for stands here, so that the list of verbs loads none of them.
"""

from importlib import import_module

from gpudash.cli.parser import Verb

VERBS = {
    "list": "The workloads and their levers: values, defaults, when a change takes effect.",
    "show": "The lines of PyTorch that do the same in a script of your own.",
    "run": "Watch your own training, unmodified, and change it while it runs.",
    "attach": "The dashboard over a command of gpudash run that was left running.",
    "notebook": "The line with which a notebook is watched whose kernel has no gpudash.",
    "ab": "Is one value of a lever faster than another: by how much, how sure.",
    "why": "What limits a training, what each lever would bring, and whether that is so.",
    "tune": "The best levers of a training, found by races and proven against the start.",
    "sweep": "Measure a table of settings in one training, block by block in turn.",
    "profile": "What the time of a few steps goes into, by torch.profiler.",
    "train": "Train a workload of your own: a function in a file, with levers of its own.",
    "replay": "The dashboard over a recording, also one that is still being written.",
    "report": "A recording as one HTML page: charts, settings, results, verdicts.",
    "export": "Write a recording in another format.",
    "compare": "Is one recorded run faster than another, setting by setting.",
    "doctor": "What this machine can measure, and what it cannot and why.",
    "info": "Versions, folders, and every setting with what has set it.",
    "schema": "The JSON Schema of what --json prints and of the files beside a CSV.",
    "completion": "A shell script that completes verbs, options, levers and their values.",
    "help": "What a verb does and takes.",
}
"""What each verb is for, in the order of `gpudash --help`."""


def load(name: str) -> Verb:
    """Return the dashboard for an empty name."""
    verb: Verb = import_module(f"gpudash.cli.{name or 'dashboard'}").VERB
    return verb._replace(summary=VERBS[name]) if name else verb
