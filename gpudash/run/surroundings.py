"""Say what gpudash runs under: a Slurm job, a pod, or a machine of one's own."""

import os
import platform
import shlex

ATTACH = "gpudash attach"


def look_in() -> str:
    """Return the command that opens the dashboard from a terminal elsewhere."""
    where = os.environ
    if job := where.get("SLURM_JOB_ID"):
        node, nodes = where.get("SLURMD_NODENAME"), where.get("SLURM_JOB_NUM_NODES", "1")
        on = f"-w {shlex.quote(node)} " if node and nodes != "1" else ""
        return f"srun --overlap --jobid {shlex.quote(job)} {on}-N 1 -n 1 --pty {ATTACH}"
    if "KUBERNETES_SERVICE_HOST" in where:
        return f"kubectl exec -it {platform.node()} -- {ATTACH}"
    return ATTACH


def in_slurm_step() -> bool:
    """Return whether this process is of a Slurm step, at whose end all of it is killed."""
    return "SLURM_STEP_ID" in os.environ
