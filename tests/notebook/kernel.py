"""A kernel without Jupyter: it runs cells in an event loop, as IPython's kernel does.

Each line of standard input is a cell as JSON; each line of standard output is what came of it. An
interrupt reaches a cell alone. `%load_ext`, `%unload_ext`, `%run` and magics are what IPython says.
"""

import asyncio
import builtins
import contextlib
import importlib
import io
import json
import runpy
import shlex
import signal
import sys
import types


class Events:
    def __init__(self):
        self.callbacks = {"pre_run_cell": [], "post_run_cell": []}

    def register(self, event, function):
        self.callbacks[event].append(function)

    def unregister(self, event, function):
        self.callbacks[event].remove(function)

    def trigger(self, event, *about):
        for function in list(self.callbacks[event]):
            function(*about)


class Shell:
    def __init__(self):
        self.events = Events()
        self.user_ns = {}
        self.magics_manager = types.SimpleNamespace(magics={"line": {}})
        self.display_pub = types.SimpleNamespace(publish=self._publish)
        self.extension_manager = self
        self.loaded = {}
        self.shown = []

    def _publish(self, data):
        self.shown.append(data)

    def register_magic_function(self, function, kind, name):
        self.magics_manager.magics[kind][name] = function

    def load_extension(self, name):
        module = importlib.import_module(name)
        module.load_ipython_extension(self)
        self.loaded[name] = module

    def line(self, text):
        """Run one line with a magic."""
        word, _, rest = text[1:].partition(" ")
        if word == "load_ext":
            self.load_extension(rest)
        elif word == "unload_ext":
            self.loaded.pop(rest).unload_ipython_extension(self)
        elif word == "run":
            file, python = shlex.split(rest)
            before, sys.argv = sys.argv, [file, python]
            self.user_ns |= runpy.run_path(file, run_name="__main__")
            sys.argv = before
        else:
            self.magics_manager.magics["line"][word](rest)

    def run(self, cell):
        """Run a cell; return what it printed, showed and raised."""
        printed, error = io.StringIO(), None
        self.shown = []
        self.events.trigger("pre_run_cell", cell)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with contextlib.redirect_stdout(printed):
                if cell.startswith("%"):
                    self.line(cell)
                else:
                    exec(compile(cell, "cell", "exec"), self.user_ns)
        except BaseException as raised:  # noqa: BLE001  # a kernel survives it
            error = f"{type(raised).__name__}: {raised}"
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.events.trigger("post_run_cell", cell)
        return {"printed": printed.getvalue(), "shown": self.shown, "error": error}


async def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    shell, reader = Shell(), asyncio.StreamReader()
    builtins.get_ipython = lambda: shell
    loop, output = asyncio.get_running_loop(), sys.stdout
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        print(json.dumps(shell.run(json.loads(line))), file=output, flush=True)


asyncio.run(main())
