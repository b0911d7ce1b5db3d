"""Which exceptions were raised by a signal handler."""

import signal

import pytest

from gpudash.instrument.guard import is_from_handler


class PreemptedError(Exception):
    pass


def _raise(*_):
    raise PreemptedError


def _deeply(*_):
    _raise()


class _Callable:
    def __call__(self, *_):
        _raise()

    def method(self, *_):
        _raise()


@pytest.fixture(autouse=True)
def own():
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("handler", [_raise, _deeply, _Callable(), _Callable().method], ids=type)
def test_an_exception_raised_by_a_handler_is_recognised(handler):
    signal.signal(signal.SIGUSR1, handler)
    with pytest.raises(PreemptedError) as raised:
        signal.raise_signal(signal.SIGUSR1)
    assert is_from_handler(raised.value)


def test_any_other_exception_is_not_from_a_handler():
    signal.signal(signal.SIGUSR1, _deeply)
    with pytest.raises(ZeroDivisionError) as raised:
        1 / 0  # noqa: B018
    assert not is_from_handler(raised.value)
