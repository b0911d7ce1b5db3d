"""Owners of device memory, in words."""

from gpudash.protocol.inspections import MemoryOwners, Owner
from gpudash.views.live import owner_lines, owners_title

TRAIN = Owner(
    file="/home/me/nets/unet.py",
    line=42,
    function="forward",
    use="activations",
    mib=2048.0,
    count=12,
)
PAIR = Owner(file="a.py", line=1, function="f", use="buffers", mib=1.0, count=2)
WEIGHTS = Owner(file="", line=0, function="", use="weights", mib=100.0, count=1)


def owners_of(*owners: Owner, answers: tuple[int, ...] = (7,)) -> MemoryOwners:
    return MemoryOwners(at_s=1.0, answers=answers, peak_mib=3072.0, owners=owners)


def test_each_owner_has_a_line_with_its_size_its_use_and_its_place():
    assert owner_lines(owners_of(TRAIN, WEIGHTS)) == [
        "2.0 GiB  activations  nets/unet.py:42 in forward, 12 allocations",
        "100 MiB  weights      line not known",
    ]
    assert owner_lines(owners_of(PAIR)) == ["1 MiB  buffers  a.py:1 in f, 2 allocations"]


def test_the_title_says_how_much_was_held_and_when():
    assert owners_title(owners_of()) == "device memory: at most 3.0 GiB in tensors over two steps"
    ran_out = owners_title(owners_of(answers=()))
    assert ran_out == "device memory: at most 3.0 GiB in tensors when memory ran out"


def test_without_an_owner_a_line_says_so():
    assert owner_lines(owners_of()) == ["nothing was allocated"]
