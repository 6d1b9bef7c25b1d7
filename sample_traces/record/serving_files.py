"""Slims the files of a recorded server: ``serving_files.py FOLDER NAME``, for a FOLDER of ``benchmarks/serving.py``.

The sample has one in sixteen of the log's lines about iterations and none about requests and routes, the totals of the
metrics pages, and the client's result without the lists of single requests. Places and addresses are replaced.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

SAMPLES = Path(__file__).resolve().parents[1] / "serving"
_LINES = re.compile(
    r"Avg prompt throughput|SpecDecoding metrics|KV cache size|non-default args|Initializing a V1 LLM engine|"
    r"Chunked prefill is enabled|Maximum concurrency"
)
_ITERATION, _EACH = ": Iteration(", 16
_PAGE = re.compile(r"(?:# TYPE )?vllm:(?!\w+_bucket)")
_PLACE = re.compile(r"(?<![\w.])/[\w./-]+|file:\S+|\d+\.\d+\.\d+\.\d+")
# The engine's first line names every setting; the rest of it is not needed.
_LONGEST = 700


def main(recorded: str, name: str) -> None:
    """Write the sample ``name`` from the files of a traced server in the folder ``recorded``."""
    source, target = Path(recorded), SAMPLES / name
    target.mkdir(parents=True, exist_ok=True)
    log = (source / "server.log").read_text(encoding="utf-8").splitlines()
    kept = {id(line) for line in [line for line in log if _ITERATION in line][::_EACH]}
    _write(target / "server.log", [line[:_LONGEST] for line in log if _LINES.search(line) or id(line) in kept])
    for page in ("metrics_before.txt", "metrics_after.txt"):
        lines = (source / page).read_text(encoding="utf-8").splitlines()
        _write(target / page, [line for line in lines if _PAGE.match(line)])
    result = json.loads((source / "bench.json").read_text(encoding="utf-8"))
    short = {key: value for key, value in result.items() if not isinstance(value, list)}
    _write(target / "bench.json", [json.dumps(short, indent=0)])


def _write(path: Path, lines: list[str]) -> None:
    text = "".join(f"{_PLACE.sub('model', line)}\n" for line in lines)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
