#!/usr/bin/env python
"""What a GPU computes, and how fast, with each installed backend of Keras: tables in Markdown.

Examples:
  python benchmarks/gpu.py --output gpu.md
  python benchmarks/gpu.py --backend torch --part golden --part embed --model small

The parts of each backend:
  golden        largest difference to the vectors of bilm-tf in tests/golden, with and without TF32
  embed         tokens per second of a text, one sentence, and the LSTMs alone, on GPU and CPU
  pytorch_lstm  the same of torch.nn.LSTM with the sizes of the model
  train         training (TensorFlow): speed, memory, and losses compared with those of the CPU
  two           two processes that compute on the GPU at the same time
  resume        weights of a run that was resumed compared with those of the same run (TensorFlow)

Each part of each backend runs in separate processes, which may take a share of the time. A part
that fails or does not end is a row with its reason, and the exit status is then 1. Nothing is
downloaded. Without a GPU all parts run on the CPU. The models have random weights.
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

ENVIRONMENT = dict(os.environ)  # before TensorFlow sets variables

import common  # noqa: E402
import numpy as np  # noqa: E402
from absl import app, flags  # noqa: E402

from bilm.options.run_options import packaged_options  # noqa: E402

BACKENDS = "tensorflow", "torch", "jax"
PARTS = {  # longest time of each process, as a share of all time
    "golden": 0.2,
    "embed": 0.15,
    "pytorch_lstm": 0.06,
    "train": 0.2,
    "two": 0.15,
    "resume": 0.2,
}
ROOT, WORKER = Path(__file__).resolve().parents[1], Path(__file__).with_name("gpu_worker.py")
DEVICES = {"GPU": {}, "CPU": {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}}

FLAGS = flags.FLAGS
flags.DEFINE_multi_enum("backend", None, BACKENDS, "Backend; default: all that are installed.")
flags.DEFINE_multi_enum("part", list(PARTS), list(PARTS), "Part.")
flags.DEFINE_multi_enum("model", ["small", "original"], packaged_options(), "Packaged size.")
flags.DEFINE_float("minutes", 8.0, "Time for all parts.", 0.0)
flags.DEFINE_bool("tiny", False, "Little work, to test this program.")
flags.DEFINE_string("output", None, "Markdown file for the tables.")

Row = dict[str, Any]


class Part(NamedTuple):
    """A process: function of gpu_worker.py, backend, model and device."""

    name: str
    backend: str
    model: str = ""
    device: str = "GPU"


def parts(backends: list[str]) -> Iterator[Part]:
    """Yield the requested parts in order."""
    for backend in backends:
        names = ["golden", "embed", "two"]
        names += {"tensorflow": ["train", "resume"], "torch": ["pytorch_lstm"], "jax": []}[backend]
        for name in (name for name in PARTS if name in names and name in FLAGS.part):
            if name == "golden":
                yield Part(name, backend)
            elif name in ("two", "resume"):
                yield Part(name, backend, FLAGS.model[0])
            else:
                yield from (Part(name, backend, m, d) for m in FLAGS.model for d in DEVICES)


def run(part: Part, left_s: float) -> list[Row]:
    """Run a part and return its rows; `left_s` is the time that is left for all parts."""
    limit_s = min(PARTS[part.name] * 60 * FLAGS.minutes, left_s)
    if part.name != "two":
        return run_process(part, part.name, limit_s)
    function = "train" if part.backend == "tensorflow" else "embed"
    with ThreadPoolExecutor() as threads:
        both = [threads.submit(run_process, part, function, limit_s) for _ in range(2)]
    return [row for process in both for row in process.result()]


def run_process(part: Part, function: str, limit_s: float) -> list[Row]:
    """Run a function of gpu_worker.py in a process, and return its rows, and the reason if it
    failed."""
    if limit_s <= 0:
        return [{"failed": "no time was left"}]
    words = [function, part.model]
    words += ["--all_modes"] if part.device == "GPU" and part.name != "two" else []
    words += ["--tiny"] if FLAGS.tiny else []
    command = [sys.executable, WORKER, *words]
    path = os.pathsep.join([str(ROOT), ENVIRONMENT.get("PYTHONPATH", "")])
    settings = {"KERAS_BACKEND": part.backend, "PYTHONPATH": path, **DEVICES[part.device]}
    environment = ENVIRONMENT | settings
    reason = None
    try:
        done = subprocess.run(command, capture_output=True, env=environment, timeout=limit_s)
        output = done.stdout
        if done.returncode:
            log = done.stderr.decode(errors="replace").split("\n")
            lines = [line.strip() for line in log if line.strip()]
            reason = lines[-1] if lines else f"exit status {done.returncode}"
    except subprocess.TimeoutExpired as error:
        output, reason = error.stdout or b"", f"did not end within {limit_s:.0f} s"
    rows = [json.loads(line) for line in output.splitlines() if line.startswith(b"{")]
    return rows + ([{"failed": reason}] if reason else [])


def compare_losses(results: dict[Part, list[Row]]) -> None:
    """Replace the losses of training by their largest difference to the losses on the CPU."""
    on_cpu: dict[str, list] = {}
    trained = [(part, row) for part, rows in results.items() for row in rows if "losses" in row]
    for part, row in trained:
        if part.device == "CPU":
            on_cpu[part.model] = row["losses"]
    for part, row in trained:
        # One of them may have had time for fewer steps.
        pairs = list(zip(row.pop("losses"), on_cpu.get(part.model, ()), strict=False))
        row["compared steps"] = len(pairs)
        row["loss difference"] = max(
            (np.abs(np.subtract(*pair)).max() for pair in pairs), default=""
        )


def tables(results: dict[Part, list[Row]]) -> str:
    """Return a table per kind of part and one of failures, in Markdown."""
    by_name: dict[str, list[Row]] = {}
    for part, rows in results.items():
        for row in rows:
            title = "failed" if "failed" in row else part.name
            labels = {"model": part.model, "backend": part.backend}
            if title == "failed":
                labels = {"part": part.name, **labels, "asked for": part.device}
            by_name.setdefault(title, []).append(labels | row)
    texts = []
    for title, rows in by_name.items():
        head = list(dict.fromkeys(key for row in rows for key in row))
        cells = [[cell(row.get(key)) for key in head] for row in rows]
        texts.append(f"### {title}\n\n{common.markdown(head, cells)}")
    return "\n".join(texts)


def cell(value: Any) -> str:
    """Return a value as the text of a cell."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "" if value is None else str(value).replace("|", "\\|")


def main(_: list[str]) -> None:
    end = time.monotonic() + 60 * FLAGS.minutes
    results: dict[Part, list[Row]] = {}
    for part in parts(FLAGS.backend or [name for name in BACKENDS if find_spec(name)]):
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
