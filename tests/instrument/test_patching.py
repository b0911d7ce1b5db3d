"""What was replaced is put back, in whatever order others have come meanwhile."""

import gc
import os

import pytest

from gpudash.instrument import patching


class Owner:
    kept = "theirs"


class Heir(Owner):
    pass


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    patching.undo()


def test_an_attribute_is_put_back_and_what_was_inherited_is_inherited_again(monkeypatch):
    for kind in (Owner, Heir):
        patching.replace(kind, "kept", "ours")
    assert (Owner.kept, Heir.kept) == ("ours", "ours")
    patching.undo()
    assert (vars(Owner)["kept"], "kept" in vars(Heir)) == ("theirs", False)
    patching.replace(Owner, "kept", "ours")
    monkeypatch.setattr(Owner, "kept", "another tool's")
    patching.undo()
    assert Owner.kept == "another tool's"


def test_the_newest_is_undone_first_and_a_failure_holds_up_no_other():
    order = []
    patching.at_undo(lambda: order.append("first"))
    patching.at_undo(lambda: 1 / 0)
    patching.at_undo(lambda: order.append("last"))
    patching.undo()
    patching.undo()
    assert order == ["last", "first"]


def test_a_forked_child_calls_what_still_lives():
    class Forgets:
        def __init__(self, code):
            self.code = code

        def forget(self):
            os._exit(self.code)

    gone, lives = Forgets(1), Forgets(2)
    patching.after_fork(gone.forget)
    del gone
    gc.collect()
    patching.after_fork(lives.forget)
    child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
