#!/usr/bin/env python
"""What a GPU computes, and how fast, with each installed backend of Keras: tables in Markdown.

Example:
  python benchmarks/gpu.py --backend torch --part golden --part embed --output gpu.md

docs/gpus.md describes the parts. Each part of each backend runs in separate processes, which may
take a share of the time. A part that fails or does not end is a row with its reason, and the exit
status is then 1. Nothing is downloaded. Without a GPU all parts run on the CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import common
import numpy as np
from absl import app, flags

from bilm.options.run_options import packaged_options

WORKER = Path(__file__).with_name("gpu_worker.py")
DEVICES = {  # and their environments
    "GPU": {
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
        # Two processes share the memory.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    },
    "CPU": {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"},
}
BACKENDS = {  # and their parts
    "tensorflow": ("golden", "embed", "train", "two", "resume"),
    "torch": ("golden", "embed", "pytorch_lstm", "two"),
    "jax": ("golden", "embed", "two"),
}
SHARES = {  # the longest time of a process of a part, of the time for all
    "golden": 0.2, "embed": 0.15, "pytorch_lstm": 0.06, "train": 0.2, "two": 0.15, "resume": 0.2
}  # fmt: skip

FLAGS = flags.FLAGS
flags.DEFINE_multi_enum("backend", None, [*BACKENDS], "Backend; default: all that are installed.")
flags.DEFINE_multi_enum("part", [*SHARES], [*SHARES], "Part.")
flags.DEFINE_multi_enum("model", ["small", "original"], packaged_options(), "Packaged size.")
flags.DEFINE_float("minutes", 8.0, "Time for all parts.", 0.0)
flags.DEFINE_bool("tiny", False, "Little work, to test this program.")
flags.DEFINE_string("output", None, "Markdown file for the tables.")

Row = dict[str, Any]


class Part(NamedTuple):
    """A part of one backend, for a model, on a device."""

    name: str
    backend: str
    model: str
    device: str = "GPU"


def parts(backend: str) -> Iterator[Part]:
    """Yield the requested parts of a backend."""
    for name in (name for name in BACKENDS[backend] if name in FLAGS.part):
        if name in ("golden", "two", "resume"):
            yield Part(name, backend, FLAGS.model[0])
        else:
            yield from (Part(name, backend, m, d) for m in FLAGS.model for d in DEVICES)


def run(part: Part, left_s: float) -> list[Row]:
    """Run a part and return its rows; `left_s` is the time that is left for all parts."""
    limit_s = min(SHARES[part.name] * 60 * FLAGS.minutes, left_s)
    if part.name != "two":
        return run_process(part, part.name, limit_s)
    function = "train" if part.backend == "tensorflow" else "embed"
    with ThreadPoolExecutor() as threads:
        both = [threads.submit(run_process, part, function, limit_s) for _ in range(2)]
    return both[0].result() + both[1].result()


def run_process(part: Part, function: str, limit_s: float) -> list[Row]:
    """Run a function of gpu_worker.py, and return its rows, and the reason if it failed."""
    if limit_s <= 0:
        return [{"failed": "no time was left"}]
    command = [sys.executable, str(WORKER), function, part.model]
    if part.device == "GPU" and part.name != "two":
        command.append("--all_modes")
    if FLAGS.tiny:
        command.append("--tiny")
    environment = os.environ | {"KERAS_BACKEND": part.backend} | DEVICES[part.device]
    failures: list[Row] = []
    try:
        done = subprocess.run(command, capture_output=True, env=environment, timeout=limit_s)
        output = done.stdout
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            failures = [{"failed": lines[-1] if lines else f"exit status {done.returncode}"}]
    except subprocess.TimeoutExpired as error:
        output, failures = error.stdout or b"", [{"failed": f"did not end in {limit_s:.0f} s"}]
    return [json.loads(line) for line in output.splitlines() if line[:1] == b"{"] + failures


def compare_losses(results: dict[Part, list[Row]]) -> None:
    """Replace the losses of training by their largest difference to the losses on the CPU."""
    trained = [(part, row) for part, rows in results.items() for row in rows if "losses" in row]
    on_cpu = {part.model: row["losses"] for part, row in trained if part.device == "CPU"}
    for part, row in trained:
        # One of them may have had time for fewer steps.
        pairs = list(zip(row.pop("losses"), on_cpu.get(part.model, ()), strict=False))
        row["compared steps"] = len(pairs)
        row["loss difference"] = max((np.abs(np.subtract(*p)).max() for p in pairs), default="")


def tables(results: dict[Part, list[Row]]) -> str:
    """Return a table per part and one of failures, in Markdown."""
    by_title: dict[str, list[Row]] = {}
    for part, rows in results.items():
        labels = {"backend": part.backend, "model": part.model}
        for row in rows:
            title, before = part.name, labels
            if "failed" in row:
                title, before = "failed", part._asdict()
            by_title.setdefault(title, []).append(before | row)
    text = ""
    for title, rows in by_title.items():
        head = list(dict.fromkeys(key for row in rows for key in row))
        cells = [[cell(row.get(key, "")) for key in head] for row in rows]
        text += f"### {title}\n\n{common.markdown(head, cells)}\n"
    return text


def cell(value: Any) -> str:
    """Return the text of a cell."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value).replace("|", "\\|")


def main(_: list[str]) -> None:
    end = time.monotonic() + 60 * FLAGS.minutes
    results: dict[Part, list[Row]] = {}
    backends = FLAGS.backend or filter(find_spec, BACKENDS)
    every_part = [part for backend in backends for part in parts(backend)]
    # The time may end before the last parts, so each backend has the first ones.
    for part in sorted(every_part, key=lambda part: [*SHARES].index(part.name)):
        start = time.monotonic()
        results[part] = run(part, end - start)
        print(*part, f"{time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    compare_losses(results)
    text = tables(results)
    print(text)
    if FLAGS.output:
        Path(FLAGS.output).write_text(text, encoding="utf-8")
    sys.exit(any("failed" in row for rows in results.values() for row in rows))


if __name__ == "__main__":
    app.run(main)
