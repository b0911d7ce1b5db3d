"""`gpudash mcp`: a client of the Model Context Protocol finds the verbs, and calls them."""

import asyncio
import json
import os
import sys

import pytest

from gpudash.cli.verbs import VERBS, load
from tests.cli.conftest import GPUDASH


def test_without_its_package_one_line_says_what_to_install(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    assert refused("mcp").endswith("valid: pip install 'gpudash[mcp]'\n")


def test_a_client_finds_each_verb_that_answers_in_json_and_calls_it(private):
    mcp = pytest.importorskip("mcp")
    server = mcp.StdioServerParameters(
        command=GPUDASH[0],
        args=[*GPUDASH[1:], "mcp"],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )

    async def talk():
        async with mcp.stdio_client(server) as streams, mcp.ClientSession(*streams) as client:
            began = await client.initialize()
            tools = (await client.list_tools()).tools
            shown = await client.call_tool("show", {"words": ["precision=bf16"]})
            wrong = await client.call_tool("show", {"words": ["precison=bf16"]})
            return began, tools, shown, wrong

    began, tools, shown, wrong = asyncio.run(talk())
    assert began.instructions.startswith("# How a program speeds up a training")
    takes_json = {name for name in VERBS if "json" in load(name).parser().options}
    assert {one.name for one in tools} == takes_json
    assert json.loads(shown.content[0].text)["lever"] == "precision"
    assert wrong.is_error
    assert "did you mean precision?" in wrong.content[0].text
