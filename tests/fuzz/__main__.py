"""Damaged inputs and models, made from seeds: each ends in success or in one clear error.

    python tests/fuzz GROUP SEED INPUTS_PER_KIND [KIND ...]

GROUP is inputs, models, manylangs, allennlp or tfhub.

Run each group in a separate process, whose memory is limited: a hang, a crash of a C library or
a huge allocation then fails the run. FUZZ_LAST=FILE in the environment names a file that always
holds the input being tried, to find the one that killed the process.
"""

import importlib
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).parents[1] / "helpers"))
sys.path.append(str(Path(__file__).parents[1]))  # for `conftest`

import fuzzing


def main(group: str, seed: str, n_inputs: str, *kinds: str) -> int:
    module = importlib.import_module(f"fuzz_{group}")
    chosen = {name: module.KINDS[name] for name in kinds or module.KINDS}
    return fuzzing.main(int(seed), int(n_inputs), chosen, getattr(module, "prepare", None))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
