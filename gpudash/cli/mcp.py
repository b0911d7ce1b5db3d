"""`gpudash mcp`: the verbs that answer in JSON, as tools of the Model Context Protocol on stdio."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine

from gpudash import __version__
from gpudash.cli.skill import TEXT
from gpudash.cli.verbs import VERBS
from gpudash.errors import UsageError

MISSING = "gpudash mcp needs the package mcp; valid: pip install 'gpudash[mcp]'"
WORDS = "`words` are those that follow the verb and --json on the command line, one by one."
MOST_TOLD = 2_000
"""Characters of what a verb says besides, from its end."""


def main(_arguments: argparse.Namespace) -> None:
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError as error:
        raise UsageError(MISSING) from error
    instructions = TEXT.read_text(encoding="utf-8")
    server = MCPServer("gpudash", version=__version__, instructions=instructions)
    for verb in VERBS.values():
        if "json" in verb.parser().options:
            server.add_tool(
                _tool(verb.name, ToolError),
                name=verb.name,
                description=f"{verb.parser().format_help()}\n{WORDS}",
                structured_output=False,
            )
    server.run("stdio")


def _tool(verb: str, failure: type[Exception]) -> Callable[..., Coroutine[None, None, str]]:
    async def call(words: list[str]) -> str:
        found, said = await called(verb, words)
        if not found:
            raise failure(said)
        return found

    return call


async def called(verb: str, words: list[str]) -> tuple[str, str]:
    """Return the document, empty if there is none, and what was said besides.

    A call that is cancelled, as at the end of the server, ends like by Ctrl-C.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gpudash", verb, "--json", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        found, told = await process.communicate()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
    said = told.decode(errors="replace").strip()[-MOST_TOLD:]
    return found.decode(), said or f"gpudash {verb} ended with {process.returncode}"
