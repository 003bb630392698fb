"""The ONNX model, run by ONNX Runtime in a process without TensorFlow."""

import subprocess
import sys
from importlib.util import find_spec

import keras
import numpy as np
import pytest
from conftest import golden_cases

if keras.backend.backend() != "tensorflow":
    pytest.skip("TensorFlow's graph is exported", allow_module_level=True)
if find_spec("tf2onnx") is None or find_spec("onnxruntime") is None:
    pytest.skip("needs the extra onnx: make test-clients", allow_module_level=True)
import onnx

from bilm import Elmo
from bilm.errors import WeightsError
from bilm.onnx_model import export_onnx

CASES = golden_cases("inference")
SENTENCES = [["She", "saw", "the", "bank", "."], [], ["café"]]
RUN = """
import sys, numpy as np, onnxruntime
sys.modules["tensorflow"] = sys.modules["keras"] = None  # to import them is an error
from bilm import Batcher

ids = Batcher(None, int(sys.argv[1])).batch_sentences(SENTENCES)
session = onnxruntime.InferenceSession("elmo.onnx", providers=["CPUExecutionProvider"])
names = [output.name for output in session.get_outputs()]
found = session.run(None, {"ids": np.asarray(ids, np.int32)})
np.savez("found.npz", **dict(zip(names, found, strict=True)))
""".replace("SENTENCES", repr(SENTENCES))


@pytest.mark.parametrize(
    "case", [CASES[k].values[0] for k in (0, 3)]
)  # all clips; three layers, no projection
def test_golden_models_compute_the_same_in_onnx_runtime(case, tmp_path):
    layer = Elmo(case)
    layer.build()
    weights = layer.mixes[0].weights_before_softmax
    weights.assign(np.linspace(0.3, -0.2, weights.shape[0]))
    export_onnx(layer, tmp_path / "elmo.onnx")
    n_characters = str(layer.options.char_cnn.max_characters_per_token)
    subprocess.run([sys.executable, "-c", RUN, n_characters], check=True, cwd=tmp_path)
    found = np.load(tmp_path / "found.npz")
    ids = layer.batcher().batch_sentences(SENTENCES)
    layers, mask, _ = layer.layers_of(keras.ops.convert_to_tensor(ids))
    there = mask.numpy()[:, None, :, None]
    np.testing.assert_allclose(found["layers"], layers.numpy() * there, atol=1e-5)
    means = layer(ids).numpy().sum(axis=1) / np.maximum(found["n_tokens"], 1)[:, None]
    np.testing.assert_allclose(found["mean"], means, atol=1e-5)
    assert found["n_tokens"].tolist() == [5, 0, 1] and found["n_tokens"].dtype == np.int32


def test_a_converter_that_is_wrong_is_found_out(tmp_path, monkeypatch):
    import tf2onnx

    convert = tf2onnx.convert.from_function

    def wrong(*arguments, output_path, **named):
        model, _ = convert(*arguments, **named)
        nodes = [node for node in model.graph.node if node.op_type == "Loop"]
        names = [node.output[-1] for node in nodes[:2]]
        for node in model.graph.node:  # the outputs of two loops change places
            for k, name in enumerate(node.input):
                if name in names:
                    node.input[k] = names[1 - names.index(name)]
        onnx.save(model, output_path)

    monkeypatch.setattr(tf2onnx.convert, "from_function", wrong)
    with pytest.raises(WeightsError, match=r"elmo.onnx: \w+ differs by .* nothing kept"):
        export_onnx(Elmo(CASES[-1].values[0]), tmp_path / "elmo.onnx")
    assert not list(tmp_path.iterdir())


def test_the_command_shows_no_notes_of_the_converter(run_here, tmp_path):
    model, file = CASES[-1].values[0], tmp_path / "elmo.onnx"
    done = run_here("bilm export", "--model", model, "--to", "onnx", "--output", file)
    assert (done.returncode, done.stdout) == (0, f"wrote {file}\n"), done.stderr
    assert "Using opset" not in done.stderr and "Optimizing ONNX model" not in done.stderr


def test_a_layer_that_keeps_state_is_refused(tmp_path):
    with pytest.raises(ValueError, match="stateless"):
        export_onnx(Elmo(CASES[0].values[0], stateful=True), tmp_path / "elmo.onnx")
