"""The same in Jupyter's own kernel, where that is installed."""

import os
import sys

import pytest

from tests.notebook.notebooks import LOAD, MODEL, SHOW, UNLOAD, attached

pytestmark = pytest.mark.long
manager = pytest.importorskip("jupyter_client.manager", reason="jupyter_client is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
PATIENCE_S = 120


class Kernel:
    """A kernel of ipykernel with a client."""

    def __init__(self, folder):
        self.manager = manager.KernelManager()
        self.manager.kernel_spec.argv = [
            *(sys.executable, "-m", "ipykernel_launcher"),
            *("-f", "{connection_file}"),
        ]
        environment = os.environ | {
            "JPY_SESSION_NAME": f"{folder}/train.ipynb",
            "IPYTHONDIR": str(folder),
        }
        self.manager.start_kernel(cwd=str(folder), env=environment)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE_S)
        self.pid = self.manager.provisioner.process.pid

    def begin(self, cell):
        return self.client.execute(cell)

    def end(self, begun):
        """Return what the cell has put out: text, and data by type; an error by its name."""
        out = []
        while True:
            message = self.client.get_iopub_msg(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") != begun:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    out.append(content["text"])
                case "display_data":
                    out.append(content["data"])
                case "error":
                    out.append(content["ename"])
                case "status" if content["execution_state"] == "idle":
                    return out

    def run(self, cell):
        return self.end(self.begin(cell))

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel()


@pytest.fixture
def kernel(place, tmp_path):
    made = Kernel(tmp_path)
    yield made
    made.close()


def test_a_kernel_is_watched_from_loading_to_unloading(kernel, place):
    assert "gpudash watches this kernel" in kernel.run(LOAD)[0]
    kernel.run(MODEL)
    kernel.run("fit(100)")
    text, picture = kernel.run(SHOW)
    assert ": 100 steps, " in text
    assert "image/svg+xml" in picture
    with attached(kernel) as dashboard:
        dashboard.wait(lambda one: one.status == "no cell trains")  # met between two cells
        begun = kernel.begin("fit(10**6)")
        dashboard.wait(lambda one: one.total_steps > 120)
        dashboard.session.change({"precision": "bf16"})
        dashboard.wait(lambda one: one.settings["precision"] == "bf16")
        kernel.manager.interrupt_kernel()
        assert kernel.end(begun)[-1] == "KeyboardInterrupt"
        dashboard.wait(lambda one: one.status == "no cell trains")
    assert kernel.run(UNLOAD) == []
    assert not [*place.iterdir()]


def test_a_restarted_kernel_begins_without_gpudash(kernel, place):
    kernel.run(LOAD)
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=PATIENCE_S)
    assert kernel.run("%gpudash")[0].startswith("UsageError")
    assert not [*place.iterdir()]
