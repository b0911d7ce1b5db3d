from gpudash.trace.summary import KernelUse, Summary, compare


def kernel(name, ms):
    return KernelUse(name, "", "", 1.0, ms, uses_tensor_cores=False)


def summary(*kernels, **also):
    return Summary(steps=1, step_ms=10.0, on_device=True, kernels=kernels, **also)


def test_kernels_come_by_the_size_of_their_change():
    before = summary(kernel("same", 5.0), kernel("faster", 4.0), kernel("gone", 0.5))
    after = summary(kernel("new", 2.0), kernel("same", 5.0), kernel("faster", 1.0))
    changes = compare(before, after).kernels
    assert [(one.name, one.change_ms) for one in changes] == [
        ("faster", -3.0),
        ("new", 2.0),
        ("gone", -0.5),
    ]
    assert [(one.before is None, one.after is None) for one in changes[1:]] == [
        (True, False),
        (False, True),
    ]


def test_totals_stand_beside_each_other_and_unknown_ones_stay_unknown():
    comparison = compare(summary(busy_ms=6.0), summary(busy_ms=8.0, mfu_pct=40.0))
    totals = {one.what: (one.before, one.after) for one in comparison.totals}
    assert totals["device busy"] == (6.0, 8.0)
    assert totals["model flops of measured peak"] == (None, 40.0)
