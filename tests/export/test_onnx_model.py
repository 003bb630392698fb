"""The ONNX model, run by ONNX Runtime in a process without TensorFlow."""

from importlib.util import find_spec

import keras
import numpy as np
import pytest
from command_runs import output_of
from conftest import GOLDEN, golden_cases
from golden_models import check_layers, sentences_of

if find_spec("tf2onnx") is None or find_spec("onnxruntime") is None:
    pytest.skip("needs the extra onnx: make test-clients", allow_module_level=True)
import onnx
import onnxruntime

from bilm import Elmo
from bilm.errors import WeightsError
from bilm.export.onnx import export_onnx

pytestmark = [pytest.mark.clients, pytest.mark.short]

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


def exported(layer, folder):
    """A session of ONNX Runtime for the export of a layer."""
    export_onnx(layer, folder / "elmo.onnx")
    return onnxruntime.InferenceSession(folder / "elmo.onnx", providers=["CPUExecutionProvider"])


# All clips; three layers, no projection.
@pytest.mark.parametrize("case", [CASES[k].values[0] for k in (0, 3)])
def test_golden_models_compute_the_same_vectors_in_onnx_runtime(case, tmp_path):
    layer = Elmo(case)
    layer.build()
    weights = layer.mixes[0].weights_before_softmax
    weights.assign(np.linspace(0.3, -0.2, weights.shape[0]))
    export_onnx(layer, tmp_path / "elmo.onnx")
    output_of(RUN, layer.options.char_cnn.max_characters_per_token, cwd=tmp_path)
    found = np.load(tmp_path / "found.npz")
    ids = layer.batcher().batch_sentences(SENTENCES)
    layers, mask, _ = layer.layers_of(keras.ops.convert_to_tensor(ids))
    there = mask.numpy()[:, None, :, None]
    np.testing.assert_allclose(found["layers"], layers.numpy() * there, atol=1e-5)
    means = layer(ids).numpy().sum(axis=1) / np.maximum(found["n_tokens"], 1)[:, None]
    np.testing.assert_allclose(found["mean"], means, atol=1e-5)
    assert found["n_tokens"].tolist() == [5, 0, 1] and found["n_tokens"].dtype == np.int32


@pytest.mark.skipif(not (GOLDEN / "manylangs").is_dir(), reason="no golden files")
def test_golden_manylangs_layers_in_onnx_runtime(tmp_path):
    case = golden_cases("manylangs")[0].values[0]
    layer = Elmo(case)
    session = exported(layer, tmp_path)
    found = []
    for words in sentences_of(case):
        ids = layer.batcher().batch_sentences([words]).astype(np.int32)
        found += list(session.run(["layers"], {"ids": ids})[0])
    check_layers(found, case)


def test_onnx_model_skips_padding_between_tokens(tmp_path):
    layer = Elmo(CASES[0].values[0])
    session = exported(layer, tmp_path)
    (plain,) = layer.batcher().batch_sentences([["She", "saw"]]).astype(np.int32)
    ids = np.zeros((3, 6, plain.shape[1]), np.int32)
    places = [0, 1, 2, 3], [0, 1, 3, 4], [2, 3, 4, 5]  # of the marks and the words between them
    for row, own in zip(ids, places, strict=True):
        row[own] = plain
    mean, layers, counts = session.run(["mean", "layers", "n_tokens"], {"ids": ids})
    assert counts.tolist() == [2, 2, 2]
    np.testing.assert_allclose(mean, mean[:1].repeat(3, 0), atol=1e-5)
    for row, own in zip(layers, places, strict=True):
        words = [own[1] - 1, own[2] - 1]
        np.testing.assert_allclose(row[:, words], layers[0][:, :2], atol=1e-5)
        assert not np.delete(row, words, axis=1).any()


def test_onnx_export_detects_a_wrong_converter(tmp_path, monkeypatch):
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
    with pytest.raises(WeightsError, match=r"elmo.onnx: \w+ differs by .* was not written"):
        export_onnx(Elmo(CASES[-1].values[0]), tmp_path / "elmo.onnx")
    assert not list(tmp_path.iterdir())


def test_onnx_export_command_hides_the_log_of_the_converter(run_here, tmp_path):
    model, file = CASES[-1].values[0], tmp_path / "elmo.onnx"
    done = run_here("bilm export", "--model", model, "--to", "onnx", "--output", file)
    assert (done.returncode, done.stdout) == (0, f"wrote {file}\n"), done.stderr
    assert "Using opset" not in done.stderr and "Optimizing ONNX model" not in done.stderr


def test_onnx_export_refuses_a_stateful_layer(tmp_path):
    with pytest.raises(ValueError, match="stateless"):
        export_onnx(Elmo(CASES[0].values[0], stateful=True), tmp_path / "elmo.onnx")
