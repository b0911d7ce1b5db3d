"""Snapshots of a user's script: a small GPT, from its public script."""

from gpudash.protocol.readings import HostReading
from gpudash.protocol.session import Straggler
from gpudash.protocol.training import Lever, Phase
from gpudash.snapshot import RankRow, Snapshot
from tests.tui.fake_engine import CPU, H200, gpu_sample
from tests.tui.scenes import Stretch, changed, row_of, series_of

CAN = ("levers", "blocks", "pause", "record", "leave", "type")
FOUND = "AdamW, root GPT, 4 backward passes a step, no DataLoader"
NO_LOADER = "the script has no DataLoader"
OFFERS = (
    Lever(
        name="precision",
        kind="choice",
        default="fp32",
        choices=("fp32", "tf32", "bf16"),
        summary="In which numbers the model computes.",
        source="torch.autocast",
        helps=(("tf32", "tf32"), ("bf16", "bf16")),
        numerics=True,
    ),
    Lever(
        name="compile",
        kind="switch",
        default="off",
        effect="rebuilt model",
        summary="Compiles the model: fewer kernels, after a wait.",
        source="torch.compile",
        helps=(("on", "fewer kernels"),),
        numerics=True,
    ),
    Lever(
        name="fused_optimizer",
        kind="choice",
        default="script",
        choices=("script", "fused", "foreach", "single"),
        summary="One kernel updates all weights, or one for each of them.",
        source="torch.optim",
        helps=(("fused", "one update"),),
    ),
    Lever(
        name="num_workers",
        kind="count",
        default="0",
        maximum=16,
        effect="new loader",
        summary="Processes that make batches.",
        source="DataLoader",
        refusal=NO_LOADER,
    ),
    Lever(
        name="pin_memory",
        kind="switch",
        default="off",
        effect="new loader",
        summary="Batches in memory that the GPU can read by itself.",
        source="DataLoader",
        refusal=NO_LOADER,
    ),
    Lever(
        name="batch_size",
        kind="choice",
        default="–",
        choices=("–",),
        summary="Samples in a step.",
        source="DataLoader",
        refusal="the script sets its batch size itself",
    ),
)
SETTINGS = {"precision": "fp32", "compile": "off", "fused_optimizer": "script"}
PHASES = tuple(
    Phase(name=name, label=label, lane="train")
    for name, label in (
        ("copy", "copy"),
        ("forward", "forward"),
        ("backward", "backward"),
        ("optimizer", "optimizer"),
        ("your_code", "your code"),
    )
)
NOW = Stretch(
    change="",
    ticks=80,
    batch=12,
    steps_per_s=9.4,
    ms={"forward": 31.0, "backward": 62.0, "optimizer": 9.0, "your_code": 3.2, "copy": 0.4,
        "prepare": 0.0, "overlap": 0.0, "host": 41.0},
    power_w=612.0,
    memory_gib=21.0,
)  # fmt: skip
PRINTED = (
    "number of parameters: 29.94M",
    "step 0: train loss 4.2874, val loss 4.2823",
    "iter 0: loss 4.2664, time 11231.40ms",
    "iter 100: loss 2.4821, time 106.31ms",
    "iter 200: loss 2.0954, time 106.38ms",
    "iter 300: loss 1.8722, time 106.27ms",
)


def training(**changes: object) -> Snapshot:
    """It trains, and no lever has been changed."""
    series = series_of((NOW,))
    row = row_of(1, "as the script", NOW, live=True, settings=SETTINGS)
    snapshot = Snapshot(
        state="training",
        status="",
        can=CAN,
        workload="train.py",
        found=FOUND,
        levers=OFFERS,
        device=H200,
        settings=SETTINGS,
        elapsed_s=series.at_s[-1] + 9.0,
        training_s=series.at_s[-1],
        worker_pid=4242,
        total_steps=376,
        total_samples=None,
        steps_since_break=376,
        phases=PHASES,
        steps_per_s=9.4,
        samples_per_s=113.0,
        step_ms_p50=106.3,
        step_ms_p95=107.1,
        loss=1.8722,
        gpu=gpu_sample(gpu_util_pct=98.0, mem_used_mib=21_504.0, power_w=612.0),
        host=HostReading(
            at_s=0.0, values={"cpu_pct": 101.0, "worker_rss_mib": 2900.0, "usable_cores": 16.0}
        ),
        series=series,
        results=(changed(row, workload="train.py"),),
    )
    return changed(snapshot, **changes)


def starting(status: str = "starting train.py") -> Snapshot:
    """The script has been started, and has not trained yet."""
    return Snapshot(
        can=CAN,
        status=status,
        awaits="torch",
        workload="train.py",
        elapsed_s=2.4,
        worker_pid=4242,
    )


def ended(**changes: object) -> Snapshot:
    """The script has ended without a training step."""
    what = {"state": "finished", "status": "train.py ended with exit code 0", "device": CPU}
    return changed(starting(), **(what | changes))


def ranks(count: int) -> tuple[RankRow, ...]:
    """So many processes that train together."""
    return tuple(
        RankRow(
            rank=rank,
            pid=5000 + rank,
            state="training",
            steps=376,
            steps_per_s=9.4 - rank / 100,
            samples_per_s=113.0 - rank / 8,
            step_ms_p50=106.3 + rank / 10,
            values={
                **({} if rank == 1 else {"data_ms": 0.2}),
                "forward_ms": 31.0,
                "backward_ms": 62.0 + rank,
                "optimizer_ms": 9.0,
            },
            loss=1.87,
        )
        for rank in range(count)
    )


def of_job(*, ranks: tuple[RankRow, ...], **changes: object) -> Snapshot:
    """These train together: a step has the samples of all of them."""
    series = series_of((changed(NOW, batch=NOW.batch * len(ranks)),))
    rate = 113.0 * len(ranks)
    return training(ranks=ranks, series=series, samples_per_s=rate, **changes)


SLOW = 3
"""The rank that the others of `of_gpus` wait for."""


def of_gpus(count: int) -> Snapshot:
    """As many ranks, each on a GPU; one of them is held down by its temperature."""
    rows = tuple(
        changed(
            row,
            step_ms_p50=6.91 + rank % 3 / 100,
            values=row.values | {"communication_ms": 0.02 if rank == SLOW else 2.5 + rank % 5 / 50},
            history=tuple(6.9 + (rank * 7 + second * 5) % 11 / 9 for second in range(60)),
            gpu=gpu_sample(
                gpu_util_pct=99.0,
                power_w=412.0 if rank == SLOW else 540.0 - rank % 8,
                sm_clock_mhz=1410.0 if rank == SLOW else 1980.0,
                mem_used_mib=21_504.0,
                temperature_c=84.0 if rank == SLOW else 61.0,
            ),
        )
        for rank, row in enumerate(ranks(count))
    )
    straggler = Straggler(
        rank=SLOW,
        phase="backward",
        excess_ms=2.5,
        slower_pct=36.0,
        others_wait_ms=2.5,
        why="clock 1,410 MHz, the others 1,980; held down by temperature, 84 °C",
    )
    return of_job(ranks=rows, straggler=straggler if count > SLOW else None)


def of_ranks(count: int) -> Snapshot:
    """Several processes train: levers are not offered there."""
    why = f"{count} processes train together"
    return of_job(
        ranks=ranks(count),
        levers=tuple(changed(offer, refusal=offer.refusal or why) for offer in OFFERS),
    )
