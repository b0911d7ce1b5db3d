"""Cut a trace of torch.profiler to one step, for tests: `trim_trace.py FROM TO.json.gz`.

The step lies between the ends of the first two `Optimizer.step`; it is annotated as ProfilerStep#1.
All other text is torch's.
"""

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any


def trimmed(text: str) -> str:
    head, rest = text.split('"traceEvents": [', 1)
    body, tail = rest.rsplit("\n  ],", 1)
    events = [(one, json.loads(one)) for one in re.split(r",\n(?=  \{)", body)]
    ends = sorted(
        event["ts"] + event["dur"]
        for _, event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith("Optimizer.step")
    )
    begin, end = ends[:2]
    launched = {
        event["args"]["correlation"]
        for _, event in events
        if event.get("cat") == "cuda_runtime" and begin <= event["ts"] < end
    }
    kept = [one for one, event in events if _is_kept(event, begin, end, launched)]
    main = next(event for _, event in events if event.get("cat") == "cpu_op")
    step = {
        "ph": "X",
        "cat": "user_annotation",
        "name": "ProfilerStep#1",
        "pid": main["pid"],
        "tid": main["tid"],
        "ts": begin,
        "dur": end - begin,
        "args": {},
    }
    kept.insert(0, f"\n  {json.dumps(step)}")
    return "".join((head, '"traceEvents": [', ",\n".join(kept), "\n  ],", tail))


def _is_kept(event: dict[str, Any], begin: float, end: float, launched: set[int]) -> bool:
    if event["ph"] == "M":
        return bool(event["name"] == "thread_name")
    if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
        return event["args"]["correlation"] in launched
    if event.get("cat") == "ac2g":
        return event["id"] in launched
    return event["ph"] == "X" and bool(begin <= event["ts"] < end)


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    data = trimmed(source.read_text(encoding="utf-8")).encode()
    target.write_bytes(gzip.compress(data, mtime=0))
