"""`ElmoEmbedder` with precision int8: close to float32, and independent of the batch."""

import gc
import json
import pickle
import sys
import weakref
from importlib.util import find_spec

import h5py
import keras
import numpy as np
import pytest
from conftest import golden_cases

from bilm.embedding import int8
from bilm.embedding.embedder import ElmoEmbedder
from bilm.language_model import BiLM
from bilm.layers import highway, lstm, token_encoder
from bilm.layers.int8_graphs import TINY
from bilm.layers.int8_weights import int8_cell, int8_matrix, quantized
from bilm.options.model_options import ModelOptions
from bilm.storage.hdf5 import save_hdf5
from bilm.storage.names import stored_values
from bilm.storage.stored_model import open_model
from bilm.support.imports import MissingExtraError

CASES = golden_cases("inference")
# Smallest and mean cosine. In `binding_clips`, random weights up to 2.5 amplify small differences:
# rounded weights of the encoder alone give 0.95 and 0.99.
CLOSE = 0.998, 0.9995
BOUNDS = {"binding_clips": (0.93, 0.99)}
SENTENCES = [
    line.split()
    for line in (
        "It was the best of times , it was the worst of times .",
        "Где ты был вчера вечером ? — спросила она .",
        "No .",
        "",
        "She went to the bank to withdraw money , and the bank by the river was closed .",
        "a " * 70,
        "The end 😀",
    )
]
with_onnx = pytest.mark.skipif(
    find_spec("onnx") is None or find_spec("onnxruntime") is None,
    reason="needs the extra onnx: make test-clients",
)


def load(folder, **kwargs):
    files = folder / "options.json", folder / "weights.hdf5"
    return ElmoEmbedder(*files, **{"precision": "int8", **kwargs})


def check_close(found, expected, bounds=CLOSE):
    """Check the smallest and the mean cosine of all vectors of all layers."""
    assert [x.shape for x in found] == [x.shape for x in expected]
    assert {x.dtype for x in found} == {np.dtype(np.float32)}
    pairs = [(x.astype(float), y.astype(float)) for x, y in zip(found, expected, strict=True)]
    norms = [np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1) for x, y in pairs]
    values = [(x * y).sum(-1) / norm for (x, y), norm in zip(pairs, norms, strict=True)]
    values = np.concatenate([value.ravel() for value in values])
    assert values.min() > bounds[0] and values.mean() > bounds[1], (values.min(), values.mean())


def check_equal(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


def random_model(folder, **changes):
    """Write a model with random weights and return its folder."""
    lstm = {"dim": 24, "projection_dim": 16, "n_layers": 2, "cell_clip": 3, "proj_clip": 3}
    lstm |= {"use_skip_connections": True}
    characters = {
        "activation": "relu", "embedding": {"dim": 4}, "filters": [[1, 8], [3, 16]],
        "max_characters_per_token": 50, "n_characters": 262, "n_highway": 1,
    }  # fmt: skip
    content = {"lstm": lstm, "char_cnn": characters, "bidirectional": True} | changes
    options = ModelOptions.from_dict(content)
    keras.utils.set_random_seed(1)
    model = BiLM(options, padding=True)
    model.build()
    (folder / "options.json").write_text(json.dumps(content))
    save_hdf5(folder / "weights.hdf5", stored_values(model))
    return folder


def test_quantized_weights_are_within_half_a_step():
    weight = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    weight[:, 3] = 0
    values, scales = quantized(weight)
    assert values.dtype == np.int8 and values.min() >= -127 and scales.dtype == np.float32
    assert (np.abs(values * scales - weight) <= scales / 2 * 1.0001).all()
    np.testing.assert_array_equal(np.abs(values).max(axis=0), [127, 127, 127, 0, 127, 127, 127])


def test_int8_without_onnx_runtime_names_the_extra(monkeypatch):
    int8.largest_input.cache_clear()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"precision int8 requires onnx.*\.\[onnx\]'"):
        ElmoEmbedder("novels-en", precision="int8")


def test_int8_is_refused_by_layers_that_keras_computes():
    options = ModelOptions.from_dict(json.loads((CASES[0].values[0] / "options.json").read_text()))
    with pytest.raises(ValueError, match="int8 is for inference only; call freeze first"):
        BiLM(options, precision="int8").build()
    model = BiLM(options, precision="int8")
    model.freeze()
    model.build()
    with pytest.raises(ValueError, match=r"int8 runs in bilm.embedding.int8 only"):
        model(np.ones((1, 3, 50), np.int32))
    with pytest.raises(ValueError, match=r"int7.*'float32', 'bfloat16', 'int8'"):
        load(CASES[0].values[0], precision="int7")


@with_onnx
@pytest.mark.clients
@pytest.mark.parametrize("folder", CASES)
def test_golden_inference_int8(folder):
    batch = json.loads((folder / "batches.json").read_text())[0]
    with h5py.File(folder / "expected.hdf5") as file:
        rows = zip(file["batch_0/lm_embeddings"][...], batch, strict=True)
        expected = [row[:, : len(words)] for row, words in rows]
    check_close(load(folder).embed_batch(batch), expected, BOUNDS.get(folder.name, CLOSE))


def rounded_product(x, weight):
    """Multiply a matrix with a weight as the documentation of the module says."""
    scale = np.maximum(np.abs(x).max(axis=1, keepdims=True) / np.float32(127), TINY)
    integers = np.rint(x / scale).astype(np.int32) @ weight.values.astype(np.int32)
    return integers * weight.scales * scale


def rounded_step(stack, cells, x, state):
    """Run a step of a stack in NumPy: the outputs and the state of its layers."""
    outputs, last = [], []
    for k, (layer, weights) in enumerate(zip(stack.layers, cells, strict=True)):
        cell, hidden = state[2 * k : 2 * k + 2]
        gates = rounded_product(np.concatenate([x, hidden], axis=1), weights.kernel) + weights.bias
        i, j, f, o = np.split(gates, 4, axis=1)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f + 1, o))
        cell = f * cell + i * np.tanh(j)
        if layer.cell.cell_clip:
            cell = np.clip(cell, -layer.cell.cell_clip, layer.cell.cell_clip)
        hidden = o * np.tanh(cell)
        if weights.projection is not None:
            hidden = rounded_product(hidden, weights.projection)
            if layer.cell.proj_clip:
                hidden = np.clip(hidden, -layer.cell.proj_clip, layer.cell.proj_clip)
        x = hidden + x if k and stack.use_skip_connections else hidden
        outputs.append(x)
        last += [cell, hidden]
    return outputs, last


@with_onnx
@pytest.mark.clients
@pytest.mark.parametrize("folder", CASES)
def test_golden_int8_step_equals_numpy(folder, monkeypatch):
    """One step from random states, of rows that start a sentence and rows that continue one.

    A value near the middle of two integers may be rounded to another one, in one row of a hundred.
    """
    monkeypatch.setattr(int8, "largest_input", lambda: int8.FULL)
    stored = open_model(folder)
    model = stored.build("int8", frozen=True)
    cells = {d: [layer.cell.laid_out for layer in s.layers] for d, s in model.stacks.items()}
    run, random = int8.Int8Stacks(model), np.random.default_rng(0)
    n_rows = 100
    shapes = [part.shape for part in model.flatten_state(model.zero_state(n_rows))]
    state = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    table = random.normal(size=(50, stored.options.lstm.projection_dim)).astype(np.float32)
    places = {d: random.integers(0, 50, size=(n_rows, 1)) for d in model.directions}
    fresh = random.random((n_rows, 1)) < 0.5
    layers, last = run(table, places, fresh, state)
    found, expected = [], []
    for k, (direction, stack) in enumerate(model.stacks.items()):
        x = table[places[direction][:, 0]]
        n_parts = len(state) // len(model.stacks)
        own = [np.where(fresh, 0, part) for part in state[k * n_parts :][:n_parts]]
        outputs, own = rounded_step(stack, cells[direction], x, own)
        np.testing.assert_array_equal(layers[direction][0, :, 0], x)
        found += [*layers[direction][1:, :, 0]]
        expected += outputs
        found += last[k * n_parts :][:n_parts]
        expected += own
    for values, wanted in zip(found, expected, strict=True):
        errors = np.abs(values - wanted).max(axis=1)
        assert np.quantile(errors, 0.95) < 1e-5, np.sort(errors)[-10:]


def rounded_encoder(encoder, ids, features):
    """Compute a token encoder in NumPy from the weights before they move to ONNX Runtime."""
    x, highway = features, encoder.highway
    for i in range(highway.n_layers):
        gate = rounded_product(x, highway.gates[i]) + np.asarray(highway.gate_biases[i])
        transform = rounded_product(x, highway.transforms[i]) + np.asarray(highway.biases[i])
        x = x + (np.maximum(transform, 0) - x) / (1 + np.exp(-gate))
    if encoder.kernel is None:
        return x
    return rounded_product(x, encoder.kernel) + np.asarray(encoder.bias)


@with_onnx
@pytest.mark.clients
@pytest.mark.parametrize("folder", CASES)
def test_golden_int8_encoder_equals_numpy(folder, monkeypatch):
    """Also for words that need all characters, which no padding follows."""
    monkeypatch.setattr(int8, "largest_input", lambda: int8.FULL)
    stored = open_model(folder)
    encoder = stored.build("int8", frozen=True).encoder
    n_characters = stored.options.char_cnn.max_characters_per_token
    ids = np.random.default_rng(0).integers(1, 262, (100, n_characters)).astype(np.int32)
    ids[np.arange(n_characters) > np.arange(100)[:, None] % n_characters] = 0
    features = keras.ops.convert_to_numpy(encoder.cnn(ids))
    expected = rounded_encoder(encoder, ids, features)
    errors = np.abs(int8.Int8Encoder(encoder)(ids) - expected).max(axis=1)
    assert np.quantile(errors, 0.9) < 1e-4, np.sort(errors)[-20:]


@with_onnx
@pytest.mark.clients
@pytest.mark.parametrize("folder", golden_cases("manylangs"))
def test_golden_int8_of_models_with_lexicons(folder):
    sentences = [["a", "bc", "the"], ["x"]]
    expected = ElmoEmbedder(folder).embed_batch(sentences)
    found = ElmoEmbedder(folder, precision="int8").embed_batch(sentences)
    check_close(found, expected, (0.99, 0.999))


@with_onnx
@pytest.mark.clients
def test_int8_vectors_of_novels_en_are_close_to_float32():
    expected = ElmoEmbedder("novels-en").embed_batch(SENTENCES)
    embedder = ElmoEmbedder("novels-en", precision="int8")
    restored = pickle.loads(pickle.dumps(embedder))
    found = embedder.embed_batch(SENTENCES)
    check_close(found, expected)
    check_equal(restored.embed_batch(SENTENCES), found)


@with_onnx
@pytest.mark.clients
@pytest.mark.parametrize("folder", CASES)
def test_int8_vectors_do_not_depend_on_order_or_batches(folder):
    """Equal to the last bit: also in windows of one step, whose state is carried over.

    The embedders share the vectors of tokens, whose last bit may depend on the words that are
    encoded together.
    """
    embedder = load(folder)
    embedder.warm_up(SENTENCES)
    expected = [embedder.embed_sentence(words) for words in SENTENCES]
    check_equal(embedder.embed_batch(SENTENCES), expected)
    for batch_tokens in (1, 7, 64):
        order = np.random.default_rng(batch_tokens).permutation(len(SENTENCES))
        other = load(folder, batch_tokens=batch_tokens)
        other._cache = embedder._cache
        found = other.embed_batch([SENTENCES[i] for i in order])
        check_equal(found, [expected[i] for i in order])


@with_onnx
@pytest.mark.clients
@pytest.mark.parametrize("layers", [1, 4])
def test_int8_forward_only_model(layers, tmp_path):
    lstm = {"dim": 32, "projection_dim": 32, "n_layers": layers, "use_skip_connections": False}
    folder = random_model(tmp_path, lstm=lstm, bidirectional=False)
    expected = load(folder, precision="float32").embed_batch(SENTENCES)
    assert expected[0].shape == (layers + 1, len(SENTENCES[0]), 32)
    check_close(load(folder).embed_batch(SENTENCES), expected)


@with_onnx
@pytest.mark.clients
def test_int8_with_inputs_of_seven_bits(monkeypatch):
    """Processors whose 16-bit sums overflow use this range."""
    assert int8.largest_input() in (int8.FULL, int8.REDUCED)
    expected = ElmoEmbedder("novels-en").embed_batch(SENTENCES)
    monkeypatch.setattr(int8, "largest_input", lambda: int8.REDUCED)
    found = ElmoEmbedder("novels-en", precision="int8").embed_batch(SENTENCES)
    check_close(found, expected, (0.995, 0.999))


@with_onnx
@pytest.mark.clients
def test_int8_embedder_keeps_no_matrices(tmp_path, monkeypatch):
    """Neither float32 matrices nor a second copy in eight bits: ONNX Runtime has its own."""
    made = []

    def noted_cell(kernel, bias, projection):
        cell = int8_cell(kernel, bias, projection)
        arrays = kernel, projection, cell.kernel.values, cell.projection.values
        made.extend(map(weakref.ref, arrays))
        return cell

    def noted_matrix(weight):
        matrix = int8_matrix(weight)
        made.extend(map(weakref.ref, (weight, matrix.values)))
        return matrix

    monkeypatch.setattr(lstm, "int8_cell", noted_cell)
    monkeypatch.setattr(highway, "int8_matrix", noted_matrix)
    monkeypatch.setattr(token_encoder, "int8_matrix", noted_matrix)
    embedder = load(random_model(tmp_path))
    gc.collect()
    assert len(made) == 16 + 6 and not any(array() is not None for array in made)
    assert embedder.embed_sentence(["word"]).shape == (3, 1, 32)


@with_onnx
@pytest.mark.clients
def test_embed_command_with_int8(run_here, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(" ".join(words) + "\n" for words in SENTENCES if words))
    out = tmp_path / "out.hdf5"
    arguments = "--model", "novels-en", "--input", text, "--output", out, "--precision", "int8"
    assert run_here("bilm embed", *arguments).returncode == 0
    expected = ElmoEmbedder("novels-en", precision="int8").embed_batch(filter(None, SENTENCES))
    with h5py.File(out) as file:
        check_equal([file[str(k)][...] for k in range(len(expected))], expected)
