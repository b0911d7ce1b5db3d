import pytest

from gpudash.rendezvous import Rendezvous
from gpudash.script.entry import without_our_interrupt


@pytest.mark.parametrize(
    ("error", "is_ours", "is_shown"),
    [
        (KeyboardInterrupt(), True, False),
        (KeyboardInterrupt(), False, True),
        (ValueError("no data"), True, True),
    ],
)
def test_only_an_interrupt_sent_by_gpudash_leaves_no_traceback(tmp_path, error, is_ours, is_shown):
    place, shown = Rendezvous(tmp_path), []
    if is_ours:
        place.end()
    without_our_interrupt(place, lambda *what: shown.append(what))(type(error), error, None)
    assert bool(shown) is is_shown
