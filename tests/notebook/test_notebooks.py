"""gpudash in a notebook's kernel: what is seen, what is changed, and what is left."""

import os
import re
import sys
import time
from pathlib import Path
from xml.etree.ElementTree import fromstring

import psutil
import pytest

import gpudash
from gpudash.cli.attach import as_text, choose
from gpudash.errors import UsageError
from gpudash.run.runs import living
from tests.notebook.notebooks import LOAD, MODEL, SHOW, UNLOAD, attached
from tests.waiting import done, until

LEFT = """
import _thread, gc, os, sys, torch
from torch.optim import optimizer as of_torch
from torch.utils.data.dataloader import _BaseDataLoaderIter as Iterator
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter
from torch.utils.data._utils.fetch import _MapDatasetFetcher as Fetcher
def places():
    scaler, graph = torch.amp.GradScaler, torch.cuda.CUDAGraph
    return [
        scaler.step, scaler.scale, graph.capture_begin, graph.capture_end, graph.replay,
        torch.autograd.backward, torch.save, torch.serialization.save, torch.nn.Module.eval,
        gc.freeze, Iterator.__next__, Fetcher.fetch, torch.optim.SGD([torch.ones(1)]).step.__func__,
        Iterator.__new__, "__new__" in vars(Iterator), _SingleProcessDataLoaderIter.__init__,
        _MultiProcessingDataLoaderIter.__init__, *of_torch._global_optimizer_pre_hooks.values(),
        *of_torch._global_optimizer_post_hooks.values(),
        *torch.jit._recursive.ignored_attributes, *sys.meta_path, sys.excepthook, *sys.path,
        *gc.callbacks,
    ]
def left():
    runs = os.listdir(os.environ["GPUDASH_RUN_DIR"])
    return [places() == before, _thread._count() - threads, runs]
before, threads = places(), _thread._count()
"""
LIMIT = "train.ipynb: "
"""In an answer, which comes once gpudash's own process is there."""


def test_the_cells_steps_are_counted_and_the_answer_is_printed_with_a_picture(notebook):
    book = notebook(python=sys.executable)
    assert "gpudash attach" in book.run(LOAD)
    book.run(MODEL)  # torch comes after gpudash
    assert book.show()[0] == "gpudash: no training step was seen so far\n"
    book.run("fit(200)")
    text, (picture,) = book.show()
    assert re.match(
        r"train.ipynb on CPU, 1 thread: 200 steps, [\d.]+ steps/s; Adam, root Seq", text
    )
    assert fromstring(picture).tag.endswith("svg")
    book.run("fit(100)", "import sys")
    assert ": 300 steps, " in book.show()[0]
    heavy = "('msgspec', 'textual', 'rich')"  # what folds and draws is in a process beside
    assert book.run(f"print([one for one in {heavy} if one in sys.modules])") == "[]\n"


def test_three_steps_have_a_rate_and_declared_ones_count_whichever_gpudash_a_cell_has(notebook):
    book = notebook(PYTHONPATH=str(Path(gpudash.__file__).parents[1]))
    book.run(MODEL + "from gpudash import step\n", LOAD, "fit(3)")  # torch was there before
    assert re.search(r": 3 steps, [\d.]+ steps/s", book.show()[0])
    book.run("for _ in range(5):\n    with step():\n        fit(3)")
    assert re.search(r": 8 steps, .*steps as the script declares them", book.show()[0])
    assert book.run(f"{SHOW} please") == "%gpudash takes no arguments\n"


@pytest.fixture
def book(notebook):
    return notebook()


def test_nothing_of_gpudash_is_left_after_unloading(book):
    book.run(MODEL + LEFT, LOAD, "fit(50)")
    with attached(book) as dashboard:
        dashboard.wait(lambda one: one.levers)
        dashboard.session.change({"precision": "bf16"})
        book.run("fit(50)")
        dashboard.wait(lambda one: one.settings.get("precision") == "bf16")
        book.run(UNLOAD)
        dashboard.wait(lambda one: one.state == "finished")
    seen = "print(left(), '_compiled_call_impl' in vars(model))"
    assert book.run(seen, seen) == "[True, 0, []] False\n"
    book.begin(SHOW)
    assert book.end()["error"].startswith("KeyError")
    book.run("fit(20)", LOAD, "fit(20)")
    assert ": 20 steps, " in book.show()[0]


def test_a_lever_is_changed_while_a_cell_runs_and_the_weights_are_as_without(notebook, tmp_path):
    changed, is_changed = notebook("c.ipynb"), tmp_path / "is_changed"
    changed.run(
        LOAD, MODEL, f"from pathlib import Path\nmade, there = 104, Path({str(is_changed)!r})"
    )
    changed.begin("while not there.exists():\n    fit(8)\n    made += 8\nfit(104)")
    with attached(changed) as dashboard:
        dashboard.wait(lambda one: one.levers and one.steps_per_s)
        dashboard.session.change({"precision": "bf16"})
        dashboard.wait(lambda one: one.settings["precision"] == "bf16")
        is_changed.touch()
        assert changed.end()["error"] is None
    as_many = f"fit({changed.run('print(made)')})"
    plain = notebook().run(MODEL, as_many, "digest()")
    watched = notebook("b.ipynb").run(LOAD, MODEL, as_many, "digest()")
    assert plain == watched != changed.run("digest()")


def test_a_dashboard_that_comes_between_cells_is_greeted_and_then_nothing_hangs(book):
    book.run(LOAD, MODEL, "fit(50)")
    with attached(book) as dashboard:
        seen = dashboard.wait(lambda one: one.levers and one.status == "no cell trains")
        assert "precision" in [one.name for one in seen.levers]
        assert seen.device is not None
        with pytest.raises(UsageError, match="watched by another gpudash"), attached(book):
            pass
        assert "gpudash attach watches since then" in book.show()[0]
        book.run("fit(60)")
        dashboard.wait(lambda one: one.total_steps == 110)
        resting = dashboard.wait(lambda one: one.status == "no cell trains" and one.steps_per_s)
        assert (resting.hang, resting.quiet_s) == (None, None)
        book.begin("fit(10**6)")
        dashboard.wait(lambda one: one.total_steps > 130 and one.doing is None)
        book.interrupt()
        assert book.end()["error"].startswith("KeyboardInterrupt")
        steps = dashboard.wait(lambda one: one.status == "no cell trains").total_steps
        book.run("fit(60)")  # the same optimizer goes on
        dashboard.wait(lambda one: one.total_steps == steps + 60)
        book.run(MODEL, "fit(30)")  # another training begins anew
        dashboard.wait(lambda one: one.total_steps == 30)
    book.run("fit(50)")
    until(lambda: "80 steps" in book.show()[0])


def test_the_answer_stays_once_a_dashboard_has_left_until_there_is_another(book):
    """There is one also of a cell that is over before anybody watches."""
    book.run(LOAD, MODEL)
    (watcher,) = psutil.Process(book.pid).children()
    watcher.suspend()
    book.run("fit(200, seconds=0.02)")  # longer than any dashboard takes
    watcher.resume()
    until(lambda: LIMIT in book.show()[0])
    with attached(book) as dashboard:
        dashboard.wait(lambda one: one.status == "no cell trains")
        until(lambda: "gpudash attach watches since then\n" in book.show()[0])
        answer, pictures = book.show()
        steps = int(re.search(r": (\d+) steps, ", answer)[1])
        book.run("fit(200)")
        dashboard.wait(lambda one: one.total_steps == steps + 200)
        assert book.show() == (answer, pictures)
    left = answer.replace("watches since then", "has watched meanwhile")
    until(lambda: book.show() == (left, pictures))
    until(lambda: "attach" not in book.train())
    assert f": {steps} steps, " not in book.show()[0]


def test_another_training_has_no_answer_of_the_one_before(book):
    """Though it has as many steps, which a dashboard watched."""
    book.run(LOAD, MODEL, "fit(200)")
    until(lambda: LIMIT in book.show()[0])
    with attached(book) as dashboard:
        dashboard.wait(lambda one: one.status == "no cell trains")
        book.run(MODEL)
        book.run("fit(300)")
        dashboard.wait(lambda one: one.total_steps == 300)
    until(lambda: "300 steps, no rate yet" in book.show()[0])
    assert LIMIT not in book.show()[0]


def test_several_notebooks_are_named_and_one_that_is_killed_leaves_nothing(notebook, place):
    one, other = notebook("one.ipynb"), notebook("other.ipynb")
    one.run(LOAD)
    other.run(LOAD)
    assert choose("other.ipynb", living()).facts.pid == other.pid
    assert choose(None, living()) is None  # both are listed
    assert {str(one.pid), "one.ipynb"} <= {*as_text(living(), (), time.time()).split()}
    one.kill()
    assert choose(None, living()).facts.pid == other.pid
    until(lambda: living() and len([*place.iterdir()]) == 1)  # its watcher ends in a moment
    other.close()
    until(lambda: not [*place.iterdir()])


def test_a_child_that_outlives_the_extension_keeps_nothing_of_it(notebook, place):
    fork = "child = os.fork()\nif not child:\n    time.sleep(100)\n    os._exit(0)"
    book = notebook()
    book.run(LOAD, "import os, time", fork, UNLOAD)
    assert [*place.iterdir()] == []
    book.run("os.kill(child, 9)")


@pytest.fixture(scope="module")
def first_cell():
    """The line for the first cell of a kernel without gpudash."""
    return done(sys.executable, "-m", "gpudash", "notebook").stdout.strip()


def test_a_kernel_without_gpudash_gets_it_by_a_line_in_its_first_cell(notebook, first_cell):
    # what the kernel's Python finds: torch, and nothing of gpudash's
    hide = "import sys; sys.modules['gpudash'] = None; sys.modules['msgspec'] = None"
    book = notebook(PYTHONPATH="")
    found = "import sys; del sys.modules['gpudash']; sys.path_importer_cache.clear()"
    book.run(hide, found, first_cell, MODEL, "fit(40)")
    assert ": 40 steps, " in book.show()[0]
    names = "print({one for one in dir() if not one.startswith('_')} & {'os', 'OLDEST', 'NEWEST'})"
    assert book.run(names) == "set()\n"


def test_a_project_with_a_module_of_this_name_keeps_it(notebook, tmp_path, first_cell):
    (tmp_path / "gpudash.py").write_text("mine = 1")
    book = notebook(PYTHONPATH=str(tmp_path))
    book.run(first_cell, MODEL, "fit(40)")
    assert ": 40 steps, " in book.show()[0]
    assert book.run("import gpudash; print(gpudash.mine)") == "1\n"
    book.run("%unload_ext _gpudash")


def test_where_there_is_nothing_to_load_or_no_folder_for_its_socket_a_line_says_so(
    notebook, tmp_path
):
    book = notebook(_GPUDASH_RUN=str(tmp_path))
    assert book.run(LOAD) == "gpudash run watches this kernel already: nothing to load\n"
    nowhere = (
        "import os; del os.environ['_GPUDASH_RUN']; os.environ['GPUDASH_RUN_DIR'] = '/nowhere'"
    )
    book.run(UNLOAD, nowhere)
    assert book.run(LOAD) == "gpudash cannot watch this kernel: No such file or directory\n"
    book.run(MODEL, "fit(5)")


READS_ONCE_A_SECOND = """
import sys, time
if sys.flags.safe_path:  # in gpudash's own process
    import socket
    received, due_s = socket.socket.recv, [0.0]
    def rarely(connection, *words):
        if not connection.getblocking():
            now_s = time.monotonic()
            if now_s < due_s[0]:
                raise BlockingIOError
            due_s[0] = now_s + 1.0
        return received(connection, *words)
    socket.socket.recv = rarely
"""


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("msgspec", "raise ImportError('not for this Python')", "train.ipynb on CPU, "),
        ("sitecustomize", READS_ONCE_A_SECOND, ": 10 steps, "),
        (
            "sitecustomize",
            "import sys\nif sys.flags.safe_path: sys.modules['msgspec'] = None",
            "gpudash's own process has ended: ModuleNotFoundError: import of msgspec halted",
        ),
    ],
)
def test_gpudashs_own_process_may_have_another_msgspec_hear_late_of_steps_or_fail(
    notebook, tmp_path, file, text, said
):
    (tmp_path / f"{file}.py").write_text(text)
    book = notebook(
        PYTHONPATH=os.pathsep.join((str(tmp_path), str(Path(gpudash.__file__).parents[1])))
    )
    book.run(LOAD, MODEL, "fit(5)")
    book.show()
    book.run("fit(5)")
    assert said in book.show()[0]
