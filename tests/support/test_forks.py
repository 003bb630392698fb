"""Forty children of every start method compute, or raise one error: none hangs."""

import json
import sys

import pytest
from command_runs import printed_by

PROGRAM = """
import json, multiprocessing, sys
import numpy as np
import bilm
from bilm.embedding.shared import ModelFiles, shared_embedder

MODEL = "novels-en"
SENTENCES = [["She", "rose", "from", "her", "chair", "."]] * 40
kept = {}

def embedder(backend="keras"):
    name = f"embedder {backend}"
    kept[name] = kept.get(name) or bilm.ElmoEmbedder(MODEL, backend=backend)
    return kept[name].embed_batch(SENTENCES, "top")[-1]

def numpy():
    return embedder("numpy")

def new_embedder():
    return bilm.ElmoEmbedder(MODEL).embed_batch(SENTENCES, "top")[-1]

def shared():
    files = ModelFiles(MODEL)
    return shared_embedder(files, files.digest()).embed_batch(SENTENCES, "top")[-1]

def stream():
    if "stream" in kept:
        return list(kept["stream"])[-1][-1]
    embedder = bilm.ElmoEmbedder(MODEL, batch_tokens=64)  # a thread computes windows ahead
    kept["stream"] = embedder.embed_as_completed(SENTENCES * 3, "top")
    next(kept["stream"])

def scorer(backend="keras"):
    kept["scorer"] = kept.get("scorer") or bilm.load_scorer(MODEL, backend=backend)
    return list(kept["scorer"].score(SENTENCES))[-1].forward

def new_scorer():
    return list(bilm.score(SENTENCES, MODEL))[-1].forward

def layer():
    import tensorflow as tf
    kept["layer"] = kept.get("layer") or bilm.Elmo(MODEL, combine="top")
    return kept["layer"](tf.constant(SENTENCES))[-1].numpy()

def new_layer():
    import tensorflow as tf
    return bilm.Elmo(MODEL, combine="top")(tf.constant(SENTENCES))[-1].numpy()

def tensorflow():
    import tensorflow as tf
    tf.linalg.matmul(tf.ones((2000, 2000)), tf.ones((2000, 2000))).numpy()

def train():
    from tempfile import mkdtemp
    with open(f"{mkdtemp()}/text.txt", "w") as file:
        file.writelines(f"a b c{k % 7} d e .\\n" for k in range(400))
    bilm.train(file.name, mkdtemp(), options="tiny", n_steps=1)

def outcome(name, expected):
    try:
        value = globals()[name]()
    except bilm.BilmError as error:
        assert "was forked from process" in str(error) and "'spawn'" in str(error), error
        return "refused"
    if name in ("train", "tensorflow"):
        return "right"
    nearest = min(np.abs(value - of).max() for of in expected if of.shape == value.shape)
    return "right" if nearest < 1e-4 else f"{nearest} from the right value"

def ended(start, name, expected):
    with multiprocessing.get_context(start).Pool(1) as pool:
        try:
            return pool.apply_async(outcome, [name, expected]).get(120)
        except multiprocessing.TimeoutError:
            return "hangs"

if __name__ == "__main__":
    start, parent, *names = sys.argv[1:]
    expected = [numpy(), scorer("numpy")]
    del kept["scorer"]
    globals()[parent]()
    print(json.dumps({name: ended(start, name, expected) for name in names}))
"""
NEW = ["numpy", "new_embedder", "shared", "new_scorer"]  # what NumPy can compute
KERAS = ["new_layer", "train"]


def outcomes(tmp_path, start, parent, names):
    program = tmp_path / "program.py"  # a file, which a spawned process imports
    program.write_text(PROGRAM)
    words = [sys.executable, program, start, parent, *names]
    return json.loads(printed_by(words, TF_CPP_MIN_LOG_LEVEL="3"))


@pytest.mark.slow
@pytest.mark.parametrize("parent", ["embedder", "stream", "scorer", "layer", "shared"])
def test_forked_children_use_numpy_or_raise_one_error(parent, tmp_path):
    names = [parent, *NEW, *KERAS]
    expected = dict.fromkeys(names, "refused") | dict.fromkeys(NEW, "right")
    assert outcomes(tmp_path, "fork", parent, names) == expected


@pytest.mark.slow
def test_forked_children_notice_tensorflow_of_the_program_itself(tmp_path):
    expected = dict.fromkeys(NEW, "right") | dict.fromkeys(KERAS, "refused")
    assert outcomes(tmp_path, "fork", "tensorflow", [*NEW, *KERAS]) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "start, parent", [("fork", "numpy"), ("spawn", "scorer"), ("forkserver", "layer")]
)
def test_other_children_compute(start, parent, tmp_path):
    names = ["embedder", "new_scorer", *KERAS]
    assert set(outcomes(tmp_path, start, parent, names).values()) == {"right"}
