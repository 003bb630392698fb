"""One suite for the softmax of all backends that score.

The reference is the softmax of the Keras model in float32, over all words at once.
"""

import keras
import numpy as np
import pytest
from conftest import golden_cases
from scorers import MODELS, WORDS, export, model_of

from bilm.data.vocabulary import ByteAlphabet, Vocabulary
from bilm.errors import OptionsError
from bilm.inference import keras as keras_backend
from bilm.inference import softmax as softmaxes
from bilm.inference.backend import Window, open_backend
from bilm.storage.stored_model import open_model

BACKENDS = ("keras", "numpy")
ATOL = 1e-5
N_LIKELIEST = 4


@pytest.fixture(params=[*BACKENDS, "keras on a GPU"])
def name(request, monkeypatch):
    """Return the name of each backend; on a GPU, Keras computes the softmax itself."""
    name, *on_gpu = request.param.split(maxsplit=1)
    if on_gpu:
        monkeypatch.setattr(keras_backend, "keras_is_on_cpu", lambda: False)
    return name


def expected_of(kernel, bias, hidden, targets):
    """Return the log-probabilities of all words, float64 (N, V), and the description."""
    scores = hidden.astype(np.float64) @ kernel.T.astype(np.float64) + bias
    logs = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    of_targets = logs[np.arange(len(targets)), targets]
    order = np.argsort(-logs, axis=1, kind="stable")[:, :N_LIKELIEST]
    description = {
        "log": of_targets,
        "entropy": -(np.exp(logs) * logs).sum(axis=1),
        "rank": 1 + (logs > of_targets[:, None]).sum(axis=1),
        "likeliest": order,
        "likeliest_logs": np.take_along_axis(logs, order, axis=1),
    }
    return logs, description


def check_softmax(stored, name, n_vectors):
    """Check the losses, the log-probabilities and the description of random hidden vectors."""
    kernel, bias = weights_of(stored)
    random = np.random.default_rng(n_vectors)
    hidden = random.normal(size=(n_vectors, kernel.shape[1])).astype(np.float32)
    targets = random.integers(0, len(bias), n_vectors).astype(np.int32)
    logs, description = expected_of(kernel, bias, hidden, targets)

    softmax = open_backend(stored, name, has_softmax=True).softmax
    assert softmax.n_words == len(bias)
    losses = softmax.losses(hidden, targets)
    assert losses.dtype == np.float32
    np.testing.assert_allclose(losses, -description["log"], atol=ATOL)
    found = list(softmax.log_probabilities(hidden))
    assert len(found) == n_vectors and all(row.dtype == np.float32 for row in found)
    np.testing.assert_allclose(np.reshape(found, logs.shape), logs, atol=ATOL)
    records = softmax.described(hidden, targets, N_LIKELIEST)
    for field, values in description.items():
        np.testing.assert_allclose(records[field], values, atol=ATOL, err_msg=field)
    assert softmax.described(hidden, targets, 0)["likeliest"].shape == (n_vectors, 0)


def weights_of(stored):
    """Return the kernel and the bias of a stored model."""
    values = dict(stored.weights(has_softmax=True).values())
    shared = stored.options.share_embedding_softmax
    return values["embedding" if shared else "softmax/W"], values["softmax/b"]


@pytest.mark.parametrize("n_vectors", [0, 1, 70])
@pytest.mark.parametrize("model", MODELS)
def test_softmax_equals_the_reference(model, name, n_vectors, tmp_path):
    check_softmax(export(model_of(model), tmp_path), name, n_vectors)


@pytest.mark.parametrize("folder", golden_cases("checkpoint"))
def test_softmax_of_golden_checkpoints(folder, name):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("checkpoints are TensorFlow's")
    check_softmax(open_model(folder), name, 50)


def test_softmax_in_bounded_memory(name, tmp_path, monkeypatch):
    """Some parts have fewer words or vectors than the others."""
    monkeypatch.setattr(softmaxes, "MAX_SCORES", 3 * len(WORDS) + 1)
    monkeypatch.setattr(softmaxes, "SLICE_WORDS", (1, 5))
    check_softmax(export(model_of("chars"), tmp_path), name, 10)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("model", MODELS)
def test_hidden_vectors_of_backends_are_equal(model, name, tmp_path):
    """A window of two rows, one of which starts again, equals the Keras model."""
    built = model_of(model)
    backend = open_backend(export(built, tmp_path), name, has_softmax=True)
    words = ["the", "cat", "日本語", "on"]
    vocabulary = Vocabulary("words", words=WORDS)
    ids = vocabulary.known_ids(words)
    if built.options.char_cnn is not None:
        ids = ByteAlphabet(built.options.char_cnn.max_characters_per_token)(words)
    table = backend.encode(ids)
    places = {d: np.array([[0, 1, 2], [3, 2, 1]], np.int32) for d in built.directions}
    is_start = np.array([[True, False, False], [True, False, True]])
    vectors, state = backend.stacks.start(table, 2)
    layers, _ = backend.stacks.run_window(vectors, Window(places, is_start), state)

    encoded = keras.ops.convert_to_numpy(built.encoder(ids))
    vectors = {d: encoded[p] for d, p in places.items()}
    expected, _ = built.windows(vectors, built.zero_state(2), fresh=is_start)
    for direction in built.directions:
        hidden = keras.ops.convert_to_numpy(expected[direction][-1])
        np.testing.assert_allclose(np.asarray(layers[direction])[-1], hidden, atol=ATOL)


def test_int8_does_not_score():
    with pytest.raises(OptionsError, match="does not score in int8; use float32"):
        open_backend(open_model("novels-en"), precision="int8", has_softmax=True)
