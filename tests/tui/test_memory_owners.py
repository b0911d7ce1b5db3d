"""`M` requests who owns device memory; the report is shown when it arrives."""

import msgspec

from gpudash.protocol.inspections import MemoryOwners, Owner
from gpudash.tui.screens.dialog import ShowLines
from tests.tui.driving import showing
from tests.tui.fake_engine import training

ABLE = msgspec.structs.replace(training(), can=("levers", "memory"))
OWNER = Owner(
    file="/home/me/train.py", line=42, function="step", use="activations", mib=2048.0, count=1
)


def told(**changes) -> MemoryOwners:
    made = MemoryOwners(at_s=1.0, answers=(1,), peak_mib=3072.0, owners=(OWNER,))
    return msgspec.structs.replace(made, **changes)


def knowing(owners: MemoryOwners):
    return msgspec.structs.replace(ABLE, memory_owners=owners)


@showing(ABLE)
async def test_the_answer_opens_when_it_comes_and_once_but_above_no_dialog(d):
    await d.show(knowing(told(answers=())))  # memory ran out: nobody has asked
    assert d.app.screen is d.app.main_screen
    await d.press("M")
    assert d.engine.calls_of("memory_owners") == [()]
    await d.show(knowing(told()))
    assert isinstance(d.app.screen, ShowLines)
    assert "train.py:42 in step" in d.text()
    await d.press("escape")
    await d.show(knowing(told()))
    assert d.app.screen is d.app.main_screen
    await d.press("M", "question_mark")
    before = d.app.screen
    await d.show(knowing(told(at_s=2.0)))
    assert d.app.screen is before
