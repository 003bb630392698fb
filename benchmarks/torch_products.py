#!/usr/bin/env python
"""GFLOP/s of the product of a few rows with the recurrent weights of `original` on PyTorch.

Example:
  KERAS_BACKEND=torch python benchmarks/torch_products.py --rows 1,8,64

Compares `torch.mm`, `torch.nn.functional.linear` and the packed weights of
`bilm.layers.torch.lstm` in float32 and bfloat16, and reports the milliseconds of packing. The
shortest of all times counts. Requires PyTorch.
"""

import time
from collections.abc import Callable

import common
import torch
from absl import app, flags

from bilm.layers.torch.lstm import Packed, can_pack

FLAGS = flags.FLAGS
flags.DEFINE_list("rows", ["1", "8", "27", "64", "256"], "Numbers of rows.")
flags.DEFINE_integer("n_times", 7, "Repetitions.", 1)
flags.DEFINE_string("json", None, "JSON file for the figures.")

WIDTH, GATES = 512, 4 * 4096  # of `original`: projection, and four gates of each unit


def main(argv: list[str]) -> None:
    del argv
    weight, found = torch.randn(WIDTH, GATES), {}
    transposed = weight.t().contiguous()
    with torch.inference_mode():
        for n_rows in map(int, FLAGS.rows):
            x = torch.randn(n_rows, WIDTH)
            runs = {
                "torch.mm": lambda x=x: torch.mm(x, weight),
                "linear": lambda x=x: torch.nn.functional.linear(x, transposed),
            }
            for dtype in filter(can_pack, (torch.float32, torch.bfloat16)):
                packed, rows = Packed(weight.to(dtype)), x.to(dtype)
                name = f"packed, {str(dtype).removeprefix('torch.')}"
                runs[name] = lambda packed=packed, rows=rows: packed.product(rows)
            for name, run in runs.items():
                flops = 2 * n_rows * WIDTH * GATES
                found[f"{name}, rows {n_rows}"] = flops / shortest(run) / 1e9
        if can_pack(torch.float32):
            found["packing, float32, ms"] = 1000 * shortest(lambda: Packed(weight))
    common.report("products of PyTorch, GFLOP/s", found, FLAGS.json)


def shortest(run: Callable[[], object]) -> float:
    """Return the seconds of the fastest of several calls, after one that is not timed."""
    run()
    times = []
    for _ in range(FLAGS.n_times):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    app.run(main)
