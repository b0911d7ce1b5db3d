"""The verbs: what each is for, what it takes, how it ends. `main` of its module does the work.

A table, apart from what it takes to do it: help and TAB load this alone.
"""

from gpudash.cli.options import (
    ENERGY,
    JSON,
    LISTENING,
    OF_A_RECORDING,
    OF_A_SCRIPT,
    OVERWRITE,
    PRICE,
    PROFILE,
    QUIET,
    SCREEN,
    WORKLOAD,
    Option,
    Options,
    Versions,
    argument,
    budget,
    destinations,
    file,
    group,
    number,
    one_of,
    option,
    percent,
    process_counts,
    record,
    recording,
    several,
    switch,
    training,
    whole,
)
from gpudash.cli.parser import Verb, definitions
from gpudash.compare.lengths import PAIRS, PAIRS_OF_A_START, ROUNDS, TUNE_S
from gpudash.compare.sweep.presets import ON_GPU
from gpudash.errors import OF_SCRIPT, Exit
from gpudash.run.speeds import SPEEDS

SHELLS = ("bash", "zsh", "fish")
MOST_STARTS = 100
TRACED_STEPS = 10
WHY_S = 30.0
CHANGES_S = 300.0
GATE_S = 600.0
ANSWER_S = 15.0
"""Seconds of training behind an answer: the recent steps of which it is are of ten."""
OF_A_COMMAND = "[options] SCRIPT.py ARGS … | -m MODULE ARGS … | -- COMMAND …"
MEASURED = (Exit.DONE, Exit.FAILED, Exit.REFUSED, Exit.INTERRUPTED)
WATCHED = (Exit.DONE, Exit.FAILED, Exit.REFUSED)
"""Exit codes of verbs that measure, and of those that are watched."""


def ends(when: str) -> str:
    """Return how a command of the user's is ended, and where its output goes until then."""
    return (
        f"A command of yours is ended once {when}: as by Ctrl-C, after 10 s by SIGTERM, after "
        "30 s by SIGKILL. With --json its output goes to standard error."
    )


def _dashboard(workload: Option = WORKLOAD) -> Options:
    return (
        training(workload),
        group(
            "length",
            one_of(
                whole("--steps", 1, 10**12, "stop after N steps"),
                number("--duration", 0.1, 10**9, "S", "stop after S seconds of training"),
            ),
        ),
        group(
            "without the screen",
            one_of(
                record("; -: the CSV alone, to standard output"),
                switch(
                    "--jsonl", "each row to standard output as it comes, as one JSON object a line"
                ),
                switch(
                    "--once", "print the dashboard as text at its end, or after 5 s of training"
                ),
            ),
            QUIET,
        ),
        recording(),
        SCREEN,
        Option(
            ("-V", "--version"),
            {"action": Versions, "nargs": 0, "help": "versions of what matters here"},
        ),
    )


DASHBOARD = Verb(
    name="",
    also="gpudash VERB …",
    summary="Watch a training workload's throughput and change it while it runs.",
    details=lambda: definitions("verbs (gpudash help VERB says more)", SUMMARIES),
    options=_dashboard(),
    examples=(
        ("gpudash", "the dashboard over the default workload"),
        ("gpudash encdec --record run.csv --steps 200", "record 200 steps without a screen"),
        ("gpudash --jsonl -q | jq .steps_per_s", "rows for a program, as they come"),
    ),
    exits=WATCHED,
    configuration="obeyed",
)
_IN_ORDER = (
    Verb(
        name="list",
        summary="The workloads and their levers: values, defaults, when a change takes effect.",
        options=(
            argument("workload", "WORKLOAD", "one workload, or FILE.py; none: all of ours"),
            JSON,
        ),
        examples=(
            ("gpudash list", "every workload with its levers"),
            ("gpudash list mine.py", "the levers of a workload of your own"),
            ("gpudash list --json", "the same for a program"),
        ),
    ),
    Verb(
        name="show",
        summary="The lines of PyTorch that do the same in a script of your own.",
        options=(
            option("what", "LEVER[=VALUE]", "a lever, or one of its values"),
            option("--workload", "WORKLOAD", "whose lever is meant; any by default"),
            option("--patch", "SCRIPT", "write the value into this script's own line: a diff"),
            JSON,
        ),
        examples=(
            ("gpudash show precision=bf16", "how to train in bf16"),
            ("gpudash show pipelined=on", "how to prepare the next batch on a stream of its own"),
            ("gpudash show num_workers=8 --patch train.py | patch -p1", "and it stands there"),
        ),
    ),
    Verb(
        name="run",
        summary="Watch your own training, unmodified, and change it while it runs.",
        usage="[options] [python] SCRIPT.py ARGS …",
        also="gpudash run [options] -m MODULE ARGS … | -- COMMAND …",
        details=lambda: (
            "All that follows the script's name is its own. It runs as without gpudash.\n"
            "Without the screen its input and output are untouched; a line at the end, on standard "
            "error, says what was measured.\n"
            "The dashboard may be left, or die: the training goes on, and gpudash attach shows it "
            "again."
        ),
        options=(
            option(
                "--python",
                "PATH",
                "runs the script (the activated environment's, else gpudash's own if it has "
                "torch, else python)",
            ),
            group(
                "without the screen",
                one_of(
                    record(),
                    switch("--watch", "record nothing, move no lever"),
                    option(
                        "--connect", "HOST:PORT", "show its ranks on the gpudash that listens there"
                    ),
                ),
                QUIET,
            ),
            LISTENING,
            recording(OF_A_SCRIPT),
            SCREEN,
        ),
        examples=(
            ("gpudash run train.py --epochs 10", "the dashboard over a script of yours"),
            ("gpudash run --record run.csv -m pkg.train", "a module, recorded without a screen"),
            ("gpudash run -- torchrun --nproc-per-node=2 train.py", "any command"),
            ("gpudash run --listen 7070 -- torchrun …", "with the ranks of other nodes"),
            ("gpudash run --connect localhost:7070 -- torchrun …", "on each of those"),
        ),
        exits=WATCHED,
        meanings=OF_SCRIPT,
        configuration="obeyed",
        user_command="alone",
    ),
    Verb(
        name="attach",
        summary="The dashboard over a command of gpudash run that was left running.",
        options=(
            argument("run", "PID|NAME", "which one, where several commands run"),
            LISTENING,
            ENERGY,
            PRICE,
            SCREEN,
        ),
        examples=(
            ("gpudash attach", "the only one that runs; of several, a list"),
            ("gpudash attach train.py", "one of several"),
        ),
        exits=WATCHED,
        meanings=OF_SCRIPT,
        configuration="obeyed",
    ),
    Verb(
        name="notebook",
        summary="The line with which a notebook is watched whose kernel has no gpudash.",
        details=lambda: (
            "Where gpudash is installed in the kernel's environment, %load_ext gpudash is enough.\n"
            "Elsewhere on this machine the printed line does the same: the kernel needs nothing of "
            "gpudash's.\n"
            "gpudash attach then shows the dashboard over the kernel, in any terminal.\n"
            "docs/guide/notebooks.md says more."
        ),
        examples=(
            ("gpudash notebook", "a line to paste into the first cell"),
            ("gpudash notebook | xclip", "… into the clipboard"),
        ),
    ),
    Verb(
        name="ab",
        summary="Is one value of a lever faster than another: by how much, how sure.",
        also=f"gpudash ab {OF_A_COMMAND}",
        details=lambda: (
            "Both values are measured in interleaved blocks of one training.\n"
            "docs/concepts/statistics.md says how, and why so.\n"
            f"{ends('there is a verdict')}\n"
            "With --starts the same command runs anew for each start, one after the other: what it "
            "writes is written again."
        ),
        options=(
            training(),
            group(
                "comparison",
                one_of(
                    option("--lever", "NAME=A,B", "what to compare; see gpudash list"),
                    switch(
                        "--no-instruments",
                        "compare gpudash's own instruments on and off: what measuring costs",
                    ),
                    option("--a", "COMMAND", "compare this command …"),
                    option(
                        "--versions", "A,B", "compare commits, tags, or . for the tree as it is"
                    ),
                    required=True,
                ),
                option("--b", "COMMAND", "… with this one"),
                option("--python-a", "PATH", "the Python of A, where its packages differ"),
                option("--python-b", "PATH", "the Python of B"),
                whole(
                    "--pairs",
                    2,
                    10_000,
                    f"pairs of blocks at most ({PAIRS}), or in each of several starts "
                    f"({PAIRS_OF_A_START})",
                ),
                option(
                    "--within",
                    "P%",
                    "know the change to ± this; by default to a quarter of it, or 1%% if more",
                    type=percent("--within"),
                ),
                whole(
                    "--starts",
                    1,
                    MOST_STARTS,
                    "start the training N times, and judge over the starts (1); two commands until "
                    "it is sure",
                ),
                budget(
                    f"of two commands, end so long after the begin ({CHANGES_S:.0f})", CHANGES_S
                ),
                switch(
                    "--losses",
                    "do the first 64 losses stay? Before the A/B, A starts twice and B once, or "
                    "each three times if any differ; two commands always say so",
                ),
                ENERGY,
            ),
            group(
                "output",
                PRICE,
                JSON,
                QUIET,
                switch("--dashboard", "show on the dashboard how two commands or versions compare"),
                switch(
                    "--exit-code",
                    f"exit {Exit.DONE:d} if B is faster, {Exit.NOT_SHOWN:d} if no difference "
                    f"is shown, {Exit.SLOWER:d} if it is slower",
                ),
                file(
                    "--card",
                    "FILE",
                    "write the verdict for a pull request: FILE.svg is a picture, FILE.md is "
                    "Markdown",
                ),
                switch("--force", "overwrite an existing card"),
            ),
        ),
        examples=(
            ("gpudash ab encdec --lever pipelined=off,on", "is pipelining faster here?"),
            ("gpudash ab --lever num_workers=2,8 train.py", "more loader workers in a script?"),
            (
                "gpudash ab encdec --lever pipelined=off,on --starts 4",
                "does it hold at the next start?",
            ),
            ("gpudash ab encdec --lever pipelined=off,on --card ab.svg", "… as a picture"),
            (
                "gpudash ab encdec --lever pipelined=off,on --energy --price 2.75",
                "… and what it saves",
            ),
            ("gpudash ab encdec --no-instruments", "what gpudash's own instruments cost"),
            (
                "gpudash ab --a 'python train.py' --b 'python train.py --fused'",
                "any change: two commands …",
            ),
            ("gpudash ab --versions main,HEAD train.py", "… or two commits"),
        ),
        exits=(*MEASURED[:-1], Exit.NOT_SHOWN, Exit.SLOWER, Exit.INTERRUPTED),
        meanings={Exit.DONE: "done; with --exit-code: B is faster"},
        configuration="obeyed",
        user_command="or workload",
    ),
    Verb(
        name="gate",
        summary="May a change go in: is a training slower than at BASE by more than is allowed.",
        usage="[options] BASE [NEW] -- SCRIPT.py ARGS … | -m MODULE ARGS … | COMMAND …",
        details=lambda: (
            "Both versions are started in turns until it is sure, as by gpudash ab --versions.\n"
            "docs/guide/gate.md says how it goes into a forge."
        ),
        options=(
            option("base", "BASE", "a commit, tag or branch, or . for the tree as it is"),
            argument("new", "NEW", "the version with the change (.)", default="."),
            group(
                "gate",
                option(
                    "--max-slowdown",
                    "P%",
                    "pass a loss of throughput up to this (2%%)",
                    type=percent("--max-slowdown"),
                    default=0.02,
                ),
                budget(f"end so long after the begin ({GATE_S:.0f})", GATE_S),
                switch(
                    "--calibrate",
                    "compare BASE with itself: which loss a gate finds here, and how soon",
                ),
                option("--python-a", "PATH", "the Python of BASE, where its packages differ"),
                option("--python-b", "PATH", "the Python of NEW"),
            ),
            group(
                "output",
                JSON,
                QUIET,
                file("--markdown", "FILE", "write it for a comment, empty if it passes; -: print"),
                file("--junit", "FILE", "write it as a test's result"),
                file("--card", "FILE", "write the verdict for a pull request, as .svg or .md"),
                switch("--force", "overwrite existing files"),
            ),
        ),
        examples=(
            ("gpudash gate main -- train.py", "is the tree as it is slower than main?"),
            (
                "gpudash gate --max-slowdown 1% --budget 20m v1.2 HEAD -- train.py --epochs 3",
                "two commits, a stricter limit, more time",
            ),
            ("gpudash gate --calibrate main -- train.py", "what can it find on this machine?"),
        ),
        exits=(
            *(Exit.DONE, Exit.FAILED, Exit.REFUSED, Exit.NOT_SHOWN, Exit.SLOWER),
            *(Exit.NOT_COMPARABLE, Exit.TRAINING_CHANGED, Exit.INTERRUPTED),
        ),
        meanings={
            Exit.DONE: "pass, or faster; with --calibrate: done",
            Exit.NOT_SHOWN: "inconclusive within the budget",
            Exit.SLOWER: "slower, by more than --max-slowdown",
        },
        configuration="obeyed",
        user_command="after --",
    ),
    Verb(
        name="attempts",
        summary="The changes that were judged in this project, and how far all verdicts are right.",
        details=lambda: (
            "Each verdict of gpudash ab and gate is kept in .gpudash/attempts.jsonl, at the "
            "root of the Git repository.\n"
            "A claim holds if it is right at an error rate over all of them: "
            "docs/concepts/statistics.md says how."
        ),
        options=(JSON,),
        examples=(
            ("gpudash attempts", "what was tried, the newest last, and what of it holds"),
            ("gpudash attempts --json", "the newest 20, for a program"),
        ),
    ),
    Verb(
        name="skill",
        summary="How a program works with gpudash: what to ask, what to claim, when to stop.",
        examples=(
            ("gpudash skill", "in the terminal"),
            ("gpudash skill > SKILL.md", "for an agent that reads files"),
        ),
    ),
    Verb(
        name="mcp",
        summary="The verbs with --json as tools of a Model Context Protocol server, on stdio.",
        details=lambda: (
            "Needs gpudash[mcp]. It serves in the folder in which it is started, until its input "
            "ends."
        ),
        examples=(
            ("gpudash mcp", "the command that an MCP client starts"),
            ("gpudash mcp < /dev/null", "does it start? It ends at once"),
        ),
    ),
    Verb(
        name="why",
        summary="What limits a training, what each lever would bring, and whether that is so.",
        also=f"gpudash why {OF_A_COMMAND}",
        details=lambda: (
            "Prints what limits the training, its evidence, and what each lever would bring.\n"
            f"{ends('that is known')}\n"
            "docs/concepts/diagnosis.md says how the answer is found."
        ),
        options=(
            training(),
            group(
                "measuring",
                budget(
                    f"end so long after the first step ({WHY_S:.0f}), with --prove 90 s later",
                    WHY_S,
                ),
                number(
                    "--seconds",
                    1,
                    3600,
                    "S",
                    f"measure steps for so long ({ANSWER_S:.0f}), in half of the budget at most",
                    ANSWER_S,
                ),
                switch(
                    "--prove",
                    "slow each part of a step in turns, at most 60 s: proves the limit, or "
                    "withdraws it",
                ),
                one_of(
                    switch("--no-profile", "trace no steps: a profile tells waits from launches"),
                    switch("--with-profile", "fail without a profile"),
                ),
            ),
            group("output", JSON, QUIET),
        ),
        examples=(
            ("gpudash why train.py", "what limits a script"),
            ("gpudash why jpeg_input --prove", "… and is that so: each part is slowed"),
            ("gpudash why --json --budget 60 train.py", "for a program, within a minute"),
        ),
        exits=MEASURED,
        configuration="obeyed",
        user_command="or workload",
    ),
    Verb(
        name="tune",
        summary="The best levers of a training, found by races and proven against the start.",
        also=f"gpudash tune {OF_A_COMMAND}",
        details=lambda: (
            "Levers are tried one after the other in interleaved blocks of one training, those "
            "that promise most first. The best setting is then proven against the start.\n"
            "What changes the training itself (batch_size, data, model_scale, seed) is tried only "
            "if --levers names it.\n"
            f"{ends('there is a verdict')}"
        ),
        options=(
            training(),
            group(
                "tuning",
                option(
                    "--levers",
                    "A,B,…",
                    "try these alone; by default all that change no results",
                    dest="only",
                ),
                budget(f"seconds of training, without compiling ({TUNE_S:.0f})", TUNE_S, least=5),
                switch(
                    "--numerics", "try levers that compute other numbers too, such as precision"
                ),
                switch("--fresh", "forget what an earlier tune of this training found"),
                ENERGY,
            ),
            group(
                "output",
                PRICE,
                option(
                    "--save",
                    "NAME",
                    "write the best as [profiles.NAME] into the project's configuration file",
                ),
                JSON,
                QUIET,
                switch(
                    "--exit-code",
                    f"exit {Exit.DONE:d} if something is proven faster, {Exit.NOT_SHOWN:d} if "
                    "nothing is",
                ),
            ),
        ),
        examples=(
            ("gpudash tune train.py", "the best loader for a script"),
            ("gpudash tune --numerics train.py", "… with precision, compile and the like"),
            ("gpudash tune encdec --save fast", "keep the best: gpudash encdec --profile fast"),
        ),
        exits=(*MEASURED[:-1], Exit.NOT_SHOWN, Exit.INTERRUPTED),
        meanings={
            Exit.DONE: "done; with --exit-code: something is proven faster",
            Exit.NOT_SHOWN: "with --exit-code: nothing is proven faster",
        },
        configuration="obeyed",
        user_command="or workload",
    ),
    Verb(
        name="sweep",
        summary="Measure a table of settings in one training, block by block in turn.",
        also=f"gpudash sweep {OF_A_COMMAND}",
        details=lambda: (
            "All settings take turns in blocks of one training, and each is compared with the "
            "first.\n"
            f"{ends('that is done')}"
        ),
        options=(
            training(
                argument("workload", "WORKLOAD", WORKLOAD.how["help"]),  # a preset has its own
                option(
                    "--nproc",
                    "N,…",
                    "train in N processes with DDP; several numbers: a training each, and how "
                    "they scale",
                    type=process_counts,
                ),
            ),
            group(
                "table",
                several("--vary", "LEVER=A,B,…", "measure these values; several make a grid"),
                option("--preset", "PRESET", f"a table by name: {', '.join(ON_GPU)}"),
                whole("--steps", 1, 10**6, "steps measured in a block (10, at least 1 s)"),
                whole("--rounds", 2, 1000, f"blocks of each setting ({ROUNDS}, or the preset's)"),
                switch("--dry-run", "say how many settings and how long; train nothing"),
            ),
            group(
                "output",
                JSON,
                file("--csv", "FILE", "write every block, and FILE.json"),
                switch("--resume", "finish the sweep of --csv FILE"),
                file("--markdown", "FILE", "write the table"),
                file("--plot", "FILE", "draw it, as .svg or .png"),
                QUIET,
                switch("--force", "overwrite existing files"),
            ),
        ),
        examples=(
            (
                "gpudash sweep --vary pipelined=off,on --vary batch_size=4,8",
                "a table of four settings",
            ),
            ("gpudash sweep --vary num_workers=2,4,8 train.py", "levers of a script of yours"),
            ("gpudash sweep encdec --nproc 1,2", "how much faster are two GPUs?"),
            (
                "gpudash sweep --preset encdec --csv s.csv --plot s.svg",
                "a source's table, as files",
            ),
        ),
        exits=MEASURED,
        configuration="obeyed",
        user_command="or workload",
    ),
    Verb(
        name="profile",
        summary="What the time of a few steps goes into, by torch.profiler.",
        also=f"gpudash profile {OF_A_COMMAND}",
        details=lambda: (
            "The steps after the warm-up are traced. The trace opens in ui.perfetto.dev too.\n"
            f"{ends('the trace is written')}"
        ),
        options=(
            training(),
            group(
                "profile",
                whole("--steps", 1, 1000, f"steps that are traced ({TRACED_STEPS})", TRACED_STEPS),
                file(
                    "--trace", "FILE.json", "the Chrome trace (NAME.trace.json, by what is trained)"
                ),
                switch("--force", "overwrite an existing trace"),
                file("--read", "FILE.json", "train nothing: read a trace of torch.profiler's"),
            ),
            group(
                "output",
                file(
                    "--against", "FILE.json", "what has changed since this trace, kernel by kernel"
                ),
                JSON,
                QUIET,
            ),
        ),
        examples=(
            ("gpudash profile encdec", "ten steps, as text, and encdec.trace.json"),
            ("gpudash profile --steps 3 train.py", "three steps of a script"),
            ("gpudash profile --read new.json --against old.json", "what has changed"),
        ),
        exits=MEASURED,
        configuration="obeyed",
        user_command="or workload",
    ),
    Verb(
        name="train",
        summary="Train a workload of your own: a function in a file, with levers of its own.",
        module="dashboard",
        details=lambda: "docs/guide/own-workload.md shows how to write one in twenty lines.",
        options=_dashboard(
            option(
                "workload",
                "FILE.py[:NAME]",
                "a file with a workload of your own, or any workload's name",
            )
        ),
        examples=(
            ("gpudash train mine.py", "the dashboard over the one workload in mine.py"),
            ("gpudash train mine.py:resnet --set width=128", "… over one of several, a lever set"),
            ("gpudash train mine.py --record run.csv --steps 200", "… without a screen"),
        ),
        exits=WATCHED,
        configuration="obeyed",
    ),
    Verb(
        name="replay",
        summary="The dashboard over a recording, also one that is still being written.",
        options=(
            file("file", "FILE", "a recording's CSV, or the log beside it"),
            number(
                "--speed",
                SPEEDS[0],
                SPEEDS[-1],
                "N",
                "seconds of it in one second (default 1)",
                1.0,
            ),
            PRICE,
            SCREEN,
        ),
        examples=(
            ("gpudash replay run.csv", "the recording, from its beginning"),
            ("gpudash replay run.csv --speed 8", "… eight times as fast"),
        ),
        configuration="obeyed",
    ),
    Verb(
        name="report",
        summary="A recording as one HTML page: charts, settings, results, verdicts.",
        options=(
            file("recording", "RUN", "a recording's CSV, or the log beside it"),
            one_of(
                file(
                    "--output", "FILE.html", "the page to write; it needs nothing beside it", "-o"
                ),
                switch("--text", "print what ran, its throughput and its settings instead"),
                required=True,
            ),
            OVERWRITE,
            PRICE,
        ),
        examples=(
            ("gpudash report run.csv -o run.html", "a page to read in any browser"),
            ("gpudash report run.csv -o run.html --force", "… once more"),
            ("gpudash report run.csv --text", "in the terminal"),
        ),
        configuration="obeyed",
    ),
    Verb(
        name="export",
        summary="Write a recording in another format.",
        options=(
            file("recording", "LOG", "FILE.jsonl, or the CSV beside it"),
            one_of(
                file("--output", "FILE", "ends in .csv (FILE.json is written too) or .jsonl", "-o"),
                destinations(OF_A_RECORDING, "to other programs"),
                required=True,
            ),
            OVERWRITE,
        ),
        examples=(
            ("gpudash export run.jsonl -o again.csv", "the CSV and its JSON, from the log"),
            ("gpudash export run.jsonl --to trace:run.trace.json", "for ui.perfetto.dev"),
        ),
    ),
    Verb(
        name="compare",
        summary="Is one recorded run faster than another, setting by setting.",
        options=(
            file("base", "BASE", "a recording's log or CSV"),
            file("new", "NEW", "a recording's log or CSV"),
            number(
                "--fail-below",
                0.001,
                1000,
                "RATIO",
                f"exit {Exit.SLOWER:d} if a throughput is shown to lie below RATIO times that of "
                "BASE",
            ),
            one_of(JSON, switch("--markdown", "print a table in Markdown")),
        ),
        examples=(
            ("gpudash compare base.csv new.csv", "the ratio of each setting, with an interval"),
            ("gpudash compare base.csv new.csv --fail-below 0.97", "a check for CI"),
        ),
        exits=(Exit.DONE, Exit.REFUSED, Exit.SLOWER),
        meanings={Exit.SLOWER: "a throughput is shown to lie below what --fail-below says"},
    ),
    Verb(
        name="doctor",
        summary="What this machine can measure, and what it cannot and why.",
        options=(JSON,),
        examples=(
            ("gpudash doctor", "look at this machine; takes a few seconds"),
            ("gpudash doctor --json", "the same for a program"),
        ),
        configuration="reported",
    ),
    Verb(
        name="info",
        summary="Versions, folders, and every setting with what has set it.",
        options=(training(), SCREEN, PROFILE, JSON),
        examples=(
            ("gpudash info", "what the next run would be set to, and why"),
            (
                "gpudash info encdec --profile quick --json",
                "the same with a profile, for a program",
            ),
        ),
        configuration="reported",
    ),
    Verb(
        name="schema",
        summary="The JSON Schema of what --json prints and of the files beside a CSV.",
        options=(argument("name", "NAME", "a document; none: their names"),),
        examples=(
            ("gpudash schema", "the names of the documents"),
            ("gpudash schema ab", "the schema of what gpudash ab --json prints"),
        ),
    ),
    Verb(
        name="completion",
        summary="A shell script that completes verbs, options, levers and their values.",
        options=(option("shell", "SHELL", ", ".join(SHELLS), choices=SHELLS),),
        examples=(
            ("gpudash completion bash >> ~/.bashrc", "for every new shell; zsh has ~/.zshrc"),
            ("gpudash completion fish >> ~/.config/fish/config.fish", "the same for fish"),
        ),
    ),
    Verb(
        name="help",
        summary="What a verb does and takes.",
        options=(argument("verb", "VERB", "a verb; none: all", default=""),),
        examples=(
            ("gpudash help", "all verbs, and the dashboard's options"),
            ("gpudash help sweep", "the options, examples and exit codes of sweep"),
        ),
    ),
)
VERBS = {verb.name: verb for verb in _IN_ORDER}
"""In the order of `gpudash --help`."""
SUMMARIES: list[tuple[str, str]] = [(verb.name, verb.summary) for verb in _IN_ORDER]


def load(name: str) -> Verb:
    """Return the dashboard for an empty name."""
    return VERBS[name] if name else DASHBOARD
