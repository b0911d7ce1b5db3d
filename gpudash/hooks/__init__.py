"""What gpudash does inside a script of the user's: find steps, measure them, move levers."""


def install() -> None:
    """Have torch, just imported, tell of the training in this process, if it is of a run."""
    import os  # noqa: PLC0415

    from gpudash.hooks.driver import Driver  # noqa: PLC0415  # `found` needs no torch hooks
    from gpudash.hooks.levers import ScriptLevers  # noqa: PLC0415
    from gpudash.hooks.patches import patch  # noqa: PLC0415
    from gpudash.hooks.tracker import PHASES, Tracker  # noqa: PLC0415
    from gpudash.rendezvous import of_environment  # noqa: PLC0415

    rendezvous = of_environment()
    if rendezvous is None:
        return
    driver = Driver(rendezvous, PHASES, ScriptLevers)
    driver.tracker = tracker = Tracker(driver)
    tracker.failed = driver.failed
    patch(tracker)
    os.register_at_fork(after_in_child=driver.forget)
