"""Which events between steps are an evaluation or a checkpoint, and which are part of a step."""

import pytest

from gpudash.script.interruptions import Interruptions

EVALUATED = "<held >held <train! trains learns |"
ACTS = "learns | calls"
CASES = {
    "two batches of another loader are an evaluation": ("<held <held!", "evaluation"),
    "one is an evaluation once training resumes": ("<held <train!", "evaluation"),
    "two loaders that alternate make a step together": (
        "<other <train! trains learns |" + 2 * " <other <train trains learns |" + " ?other!",
        None,
    ),
    "a loader that is exhausted each time is an evaluation each time": (
        " ".join([EVALUATED] * 3),
        None,
    ),
    "a new training loader each epoch is no evaluation": ("<new trains learns | <new", None),
    "a call without gradients is an evaluation, one at a time": ("calls! calls", "evaluation"),
    "it lasts until a training call": ("calls! trains", None),
    "a call without gradients within a step is part of the step": ("trains calls", None),
    "a script that acts before each step evaluates nothing": (
        f"calls! {ACTS} {ACTS} {ACTS} learns | learns | calls!",  # a step without
        "evaluation",
    ),
    "a loader that was evaluated does not become a training loader": (
        "<held calls! <held calls <train learns ?held",
        None,
    ),
    "only a file saved between steps is a checkpoint": ("saves! saved <train learns saves", None),
    "an evaluation may follow a checkpoint": ("saves! saved calls!", "evaluation"),
}
"""`<` and `>` stand before a loader that is asked for a batch, or that has none left; `|` is a
step's end; `?` asks whether a loader is trained on. `!` stands behind what begins an aside."""


@pytest.mark.parametrize(("events", "why"), CASES.values(), ids=CASES)
def test_what_begins_an_aside_and_which(events, why):
    asides = Interruptions()
    of_loader = {"<": asides.fetches, ">": asides.exhausts, "?": asides.is_trained_on}
    for event in f"<train learns | {events}".split():
        name = event.removesuffix("!").replace("|", "border")
        call = of_loader.get(name[0])
        said = getattr(asides, name)() if call is None else call(name[1:])
        assert bool(said) == event.endswith("!"), event
    assert asides.why == why
