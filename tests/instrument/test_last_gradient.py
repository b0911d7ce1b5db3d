"""Detects the last gradient of a backward pass, here in one process."""

import gc
import weakref

import pytest
import torch
from torch import nn

from gpudash.instrument import last_gradient
from gpudash.instrument.last_gradient import LastGradient


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x, *, skips_first=False):
        return self.third(self.second(x if skips_first else self.first(x)))


class Watched:
    """A module, with the gradients that existed at each report."""

    def __init__(self, module=None):
        self.module = module or Net()
        self.complete = []  # at each call
        self.parts = []  # how many gradients were there at the end of each part
        self.last = LastGradient(self.module, self._take, self._take_part)

    def _take(self):
        wanted = [one for one in self.module.parameters() if one.requires_grad]
        self.complete.append(all(one.grad is not None for one in wanted))

    def _take_part(self):
        self.parts.append(sum(one.grad is not None for one in self.module.parameters()))

    def backwards(self, passes, **how):
        return [self.backward(**how) for _ in range(passes)]

    def backward(self, **how):
        """Return the result of `end`, and which gradients existed at each newest call."""
        self.module.zero_grad()
        self.complete.clear()
        self.parts.clear()
        loss = self.module(torch.ones(1, 4), **how).sum()
        self.last.begin()
        loss.backward()
        return self.last.end(), self.complete[-1:]


@pytest.fixture
def watched():
    return Watched()


def test_the_first_pass_finds_the_last_gradient_and_later_ones_report_it(watched):
    assert watched.backwards(4) == [(False, []), *[(True, [True])] * 3]


def test_another_last_gradient_is_found_if_the_known_one_is_left_out(watched):
    watched.backwards(2)
    reported = [watched.backward(skips_first=True)[0] for _ in range(5)]
    assert reported[0] is False
    assert reported[-1] is True
    assert watched.backward() == (True, [True])
    assert watched.backward(skips_first=True)[0] is True


def test_a_later_gradient_than_the_known_one_is_found_in_time(monkeypatch):
    monkeypatch.setattr(last_gradient, "WATCH_EVERY", 4)
    watched = Watched()
    watched.module.first.requires_grad_(requires_grad=False)
    watched.backward()
    watched.module.first.requires_grad_(requires_grad=True)
    reported = watched.backwards(8)
    assert reported[0] == (True, [False])  # a later one is not known yet
    assert reported[-1] == (True, [True])


def test_a_pass_is_cut_into_parts_with_similar_numbers_of_gradients(watched):
    watched.backward()
    assert watched.backward() == (True, [True])
    assert all(1 <= there < 6 for there in watched.parts)
    assert watched.parts == sorted(watched.parts)
    assert len(watched.parts) >= 2


def test_a_module_of_few_parameters_is_not_cut():
    watched = Watched(nn.Linear(4, 4))
    watched.backwards(3)
    assert watched.parts == []


def test_a_part_that_ends_after_the_known_gradient_shows_that_it_was_not_the_last(watched):
    for layer in (watched.module.first, watched.module.second):
        layer.requires_grad_(requires_grad=False)
    watched.module.third = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    watched.backwards(2)
    watched.module.third = watched.module.third[::-1]  # the same four, the other way round
    ends = [watched.backward()[0] for _ in range(4)]
    assert (ends[0], ends[-1]) == (False, True)


def test_without_any_gradient_watching_is_given_up(watched):
    other = nn.Linear(4, 4)
    for _ in range(100):
        watched.last.begin()
        other(torch.ones(1, 4)).sum().backward()
        assert watched.last.end() is False
    assert watched.last.has_given_up
    watched.last.begin()
    assert hooks_on(watched.module) == []


@pytest.mark.parametrize("others", [1, 2, 5])
@pytest.mark.parametrize("is_first", [True, False])
def test_models_that_take_turns_each_report_their_own_last_gradient(others, is_first):
    watched, other, reported, watches = Watched(), nn.Linear(4, 4), [], []
    for _ in range(40):
        if is_first:
            reported.append(watched.backward())
        for _ in range(others):
            watched.last.begin()
            watches.append(watched.last._is_watching)
            other(torch.ones(1, 4)).sum().backward()
            assert watched.last.end() is False
        if not is_first:
            reported.append(watched.backward())
    assert not watched.last.has_given_up
    assert reported[8:] == [(True, [True])] * 32
    assert sum(watches) < 20  # each costs 5 µs a parameter


def hooks_on(module):
    return [
        hooks
        for one in module.parameters()
        for hooks in (one._backward_hooks, one._post_accumulate_grad_hooks)
        if hooks
    ]


def test_hooks_of_the_scripts_own_stay():
    watched, seen = Watched(), []
    watched.module.first.weight.register_hook(lambda _: seen.append("before"))
    watched.module.first.bias.register_post_accumulate_grad_hook(lambda _: seen.append("after"))
    watched.backwards(3)
    assert sorted(seen) == ["after"] * 3 + ["before"] * 3


def test_a_failing_pass_leaves_no_hooks(watched):
    watched.backward()
    loss = watched.module(torch.ones(1, 4)).sum()
    loss.register_hook(lambda _: 1 / 0)
    watched.last.begin()
    with pytest.raises(ZeroDivisionError):
        loss.backward()
    assert watched.last.end() is False
    assert hooks_on(watched.module) == []


def test_a_module_is_not_kept_alive_and_its_layers_can_be_swapped(watched):
    watched.backwards(2)
    module, layers = weakref.ref(watched.module), [*watched.module.children()]
    watched.module = None
    gc.collect()
    assert module() is None
    for layer in layers:  # as `to` does with tensors of subclasses: one with a weakref is refused
        for one in layer.parameters():
            torch.utils.swap_tensors(one, nn.Parameter(torch.zeros_like(one)))
    watched.last.begin()
    assert watched.last.end() is False
    parameter = weakref.ref(layers.pop().weight)
    del layer, one
    gc.collect()
    assert parameter() is None


def test_no_hooks_are_set_if_the_compiler_would_trace_them(watched):
    watched.backward()
    with torch._dynamo.config.patch(compiled_autograd=True):
        assert watched.backward() == (False, [])
