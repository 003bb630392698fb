"""One suite for all backends of the embedder, over every option that a model may have.

The reference is the Keras model in float32 on whole sentences. Golden cases test each backend, too.
"""

import json
import sys
from importlib.util import find_spec

import h5py
import keras
import numpy as np
import pytest
import threadpoolctl
from command_runs import output_of
from conftest import golden_cases, others_slow
from options_examples import CHAR_CNN, LSTM
from stored_files import stored_values

from bilm.activations import ACTIVATIONS, Activation
from bilm.data.model_ids import TokenBatcher, batcher
from bilm.embedding.embedder import ElmoEmbedder
from bilm.inference.backend import SMALL_WORK, SMALL_WORK_WITH_GPU, chosen_backend, most_tokens
from bilm.inference.onnx_int8 import quantized
from bilm.language_model import BiLM
from bilm.layers.onnx_graph import GraphWriter, Int8Matrix
from bilm.options.model_options import ModelOptions
from bilm.storage.hdf5 import save_hdf5
from bilm.storage.stored_model import open_model
from bilm.support.imports import MissingExtraError
from bilm.tensors import n_parameters

ATOL = 1e-5
with_onnx = [
    pytest.mark.clients,
    pytest.mark.skipif(
        find_spec("onnx") is None or find_spec("onnxruntime") is None,
        reason="needs the extra onnx: make test-clients",
    ),
]
WAYS = {"keras": ("keras", "float32"), "bfloat16": ("keras", "bfloat16")}
WAYS |= {"numpy": ("numpy", "float32"), "int8": ("keras", "int8")}
EACH_WAY = [pytest.param(way, marks=with_onnx if way == "int8" else ()) for way in WAYS]
SENTENCES = [
    line.split()
    for line in (
        "It was the best of times , it was the worst of times .",
        "Где ты был вчера вечером ? 😀",
        "No .",
        "",
        "a Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
        "a " * 40,
        "<S> says hello to </S>",
    )
]

CNN = CHAR_CNN | {"filters": [[1, 5], [2, 4], [3, 6]], "max_characters_per_token": 50}
CNN |= {"n_characters": 262}


def lstm(**changes):
    return {"lstm": LSTM | changes}


def cnn(**changes):
    return {"char_cnn": CNN | changes}


MODELS = {
    **{f"activation {name}": cnn(activation=name) for name in ACTIVATIONS},
    "forward only": {"bidirectional": False},
    "1 layer": lstm(n_layers=1),
    "4 layers": lstm(n_layers=4),
    "no skip connections": lstm(use_skip_connections=False),
    "no clips": lstm(cell_clip=None, proj_clip=None),
    "binding clips": lstm(cell_clip=0.1, proj_clip=0.02),
    "no LSTM projection": lstm(projection_dim=10),
    "no CNN projection": cnn(filters=[[1, 2], [4, 4]]),
    "no highway": cnn(n_highway=0),
    "2 highways": cnn(n_highway=2),
    "short words": cnn(max_characters_per_token=8),
    "words": {"char_cnn": None},
}


def random_model(folder, name, **changes):
    """Write a model with random weights; return the model."""
    content = {"bidirectional": True, **lstm(), **cnn(), **MODELS.get(name, {}), **changes}
    options = ModelOptions.from_dict(content)
    words = ["<S>", "</S>", "<UNK>", "the", "No"] if options.reads_words else []
    if words:
        (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    keras.utils.set_random_seed(1)
    model = BiLM(options, len(words) or None, padding=True)
    model.build()
    for variable in model.variables:  # larger than the initial values, so that clips bind
        variable.assign(keras.ops.convert_to_tensor(variable) * 2)
    (folder / "options.json").write_text(json.dumps(content))
    save_hdf5(folder / "weights.hdf5", stored_values(model))
    return model


def reference(model, folder):
    """Return the layers of each sentence, from the ids of all sentences in one batch."""
    options = model.options
    if options.reads_words:
        ids = TokenBatcher(folder / "vocab.txt").batch_sentences(SENTENCES)
    else:
        ids = batcher(options).batch_sentences(SENTENCES)
    layers = keras.ops.convert_to_numpy(model(ids.astype(np.int32))["layers"])
    pairs = zip(layers, SENTENCES, strict=True)
    return [row[:, 1 : len(words) + 1] for row, words in pairs]


def check(found, expected, way, bounds=(0.9, 0.997)):
    """Check vectors: equal in float32, with rounded inputs of products near to it."""
    assert [x.shape for x in found] == [x.shape for x in expected]
    assert {x.dtype for x in found} == {np.dtype(np.float32)}
    if WAYS[way][1] == "float32":
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, atol=ATOL, rtol=2e-5)
        return
    width = expected[0].shape[-1]
    x, y = (np.concatenate([a.reshape(-1, width) for a in all_]) for all_ in (found, expected))
    cosines = (x * y).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)
    assert cosines.min() > bounds[0] and cosines.mean() > bounds[1], (cosines.min(), cosines.mean())


def check_backend(folder, model, way):
    """Check a backend with batches of all sizes, and single sentences."""
    stored = open_model(folder)
    backend, precision = WAYS[way]
    embedder = ElmoEmbedder(stored, backend=backend, precision=precision, batch_tokens=32)
    found = embedder.embed_batch(SENTENCES)
    check(found, reference(model, folder), way)
    for words, vectors in zip(SENTENCES, found, strict=True):
        np.testing.assert_allclose(embedder.embed_sentence(words), vectors, atol=1e-3)


# The golden models have the other options.
QUICK = "forward only", "4 layers", "words"


@pytest.mark.parametrize("way", ["keras", "numpy", pytest.param("int8", marks=with_onnx)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in MODELS]
)
def test_backend_equals_the_keras_model(name, way, tmp_path):
    check_backend(tmp_path, random_model(tmp_path, name), way)


@pytest.mark.parametrize("name", ["activation tanh", "words"])  # the same layers as in float32
def test_backend_in_bfloat16_is_near_to_the_keras_model(name, tmp_path):
    check_backend(tmp_path, random_model(tmp_path, name), "bfloat16")


# In bfloat16 other models have the same layers.
CASES = {
    kind: [
        pytest.param(*case.values, way, id=f"{case.id}-{way}", marks=[*case.marks, *marks])
        for way, marks in ((way.values[0], way.marks) for way in EACH_WAY)
        for case in (others_slow if way == "bfloat16" else list)(golden_cases(kind))
    ]
    for kind in ("manylangs", "inference")
}


@pytest.mark.parametrize(("folder", "way"), CASES["manylangs"])
def test_backend_equals_the_keras_model_with_lexicons(folder, way):
    check_backend(folder, open_model(folder).build(), way)


@pytest.mark.parametrize("way", EACH_WAY)
def test_new_activation_is_computed_by_all_backends(way, tmp_path, monkeypatch):
    softplus = Activation("softplus", lambda np, x: np.logaddexp(x, 0).astype(x.dtype), "Softplus")
    monkeypatch.setitem(ACTIVATIONS, "softplus", softplus)
    model = random_model(tmp_path, "softplus", **cnn(activation="softplus"))
    check_backend(tmp_path, model, way)


@pytest.mark.parametrize(("folder", "way"), CASES["inference"])
def test_golden_inference_of_backends(folder, way):
    backend, precision = WAYS[way]
    batch = json.loads((folder / "batches.json").read_text())[0]
    with h5py.File(folder / "expected.hdf5") as file:
        rows = zip(file["batch_0/lm_embeddings"][...], batch, strict=True)
        expected = [row[:, : len(words)] for row, words in rows]
    # Random weights up to 2.5 in `binding_clips` amplify small differences.
    bounds = (0.9, 0.99) if folder.name == "binding_clips" else (0.998, 0.9995)
    embedder = ElmoEmbedder(folder, backend=backend, precision=precision)
    check(embedder.embed_batch(batch), expected, way, bounds)


@pytest.mark.parametrize("precision, atol", [("float32", 1e-6), ("bfloat16", 1e-3)])
@pytest.mark.parametrize("max_joint", [512, 0], ids=["small cells", "large cells"])
def test_one_sentence_equals_the_sentence_in_a_batch(monkeypatch, precision, atol, max_joint):
    if keras.backend.backend() == "tensorflow":
        from bilm.layers.tensorflow import lstm

        monkeypatch.setattr(lstm, "MAX_JOINT", max_joint)
    embedder = ElmoEmbedder("novels-en", precision=precision, batch_tokens=7)
    sentences = [words for words in SENTENCES if words]
    expected = embedder.embed_batch(sentences)
    for words, wanted in zip(sentences, expected, strict=True):
        np.testing.assert_allclose(embedder.embed_sentence(words), wanted, atol=atol)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"backend": "numpy", "precision": "bfloat16"}, "numpy computes in float32, not in bfloa"),
        ({"backend": "jax"}, "backend is 'jax', expected one of"),
        ({"precision": "int7"}, "int7.*float32, bfloat16, int8"),
    ],
)
def test_unsupported_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ElmoEmbedder("novels-en", **settings)


def test_numpy_is_chosen_for_short_texts_before_keras_is_imported(monkeypatch):
    model = open_model("novels-en")
    assert chosen_backend(model, 1) == "keras"  # is imported
    monkeypatch.delitem(sys.modules, "keras")
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setattr("shutil.which", {"nvidia-smi": "/usr/bin/nvidia-smi"}.get)
    assert most_tokens(model.options) == SMALL_WORK_WITH_GPU // n_parameters(model.options)
    monkeypatch.setattr("shutil.which", {}.get)
    most = most_tokens(model.options)
    assert most == SMALL_WORK // n_parameters(model.options)
    for n_tokens, name in ((most, "numpy"), (most + 1, "keras")):
        assert chosen_backend(model, n_tokens) == name
    assert chosen_backend(model, 1, precision="bfloat16") == "keras"
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")  # the user's choice
    assert chosen_backend(model, 1) == "keras"


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_numpy_replaces_pytorch_and_jax_on_a_cpu(library, monkeypatch):
    model = open_model("novels-en")
    monkeypatch.setenv("KERAS_BACKEND", library)
    for gpu, name in ((None, "numpy"), ("/usr/bin/nvidia-smi", "keras")):
        monkeypatch.setattr("shutil.which", {"nvidia-smi": gpu}.get)
        assert chosen_backend(model) == name
    assert chosen_backend(model, name="keras") == "keras"


def test_golden_backend_jax_compiles_few_programs_for_sentences_of_any_lengths(caplog):
    """CI runs golden tests on JAX."""
    if keras.backend.backend() != "jax":
        pytest.skip("only JAX compiles a program for each shape")
    import jax

    random = np.random.default_rng(0)
    words = ["".join(random.choice([*"abcdefgh"], n)) for n in random.integers(1, 60, 2000)]
    text = [list(random.choice(words, n)) for n in random.geometric(0.05, 640)]
    embedder = ElmoEmbedder("novels-en", backend="keras")
    with jax.log_compiles():
        embedder.embed_batch(text)
    programs = [x for x in caplog.records if x.getMessage().startswith("Compiling")]
    assert 0 < len(programs) <= 12, programs


BLAS = """
import os, threading
os.environ["OPENBLAS_NUM_THREADS"] = "2"
import numpy, threadpoolctl
from bilm.inference.blas import blas_threads
def now():
    found = threadpoolctl.threadpool_info()
    return sorted({one["num_threads"] for one in found if one["user_api"] == "blas"})
def run(entered, leave):
    with blas_threads(1):
        entered.set()
        leave.wait()
assert now() == [2]
with blas_threads(1), blas_threads(1):
    assert now() == [1]
assert now() == [2]
events = [(threading.Event(), threading.Event()) for _ in range(2)]
threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in events]
for thread, (entered, _) in zip(threads, events):
    thread.start()
    entered.wait()
assert now() == [1]
for thread, (_, leave) in zip(threads, events):
    leave.set()
    thread.join()
    assert now() == [2]
print("compared")
"""


def test_blas_has_one_thread_in_a_block_and_overlapping_blocks_restore_the_number():
    with threadpoolctl.threadpool_limits(2, "blas"):
        n_threads = [x["num_threads"] for x in threadpoolctl.threadpool_info()]
    if 2 not in n_threads:
        pytest.skip("threadpoolctl cannot control the BLAS library of NumPy")
    assert output_of(BLAS) == "compared\n"


def test_quantized_weights_are_within_half_a_step():
    weight = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    weight[:, 3] = 0
    values, scales = quantized(weight)
    assert values.dtype == np.int8 and values.min() >= -127 and scales.dtype == np.float32
    assert (np.abs(values * scales - weight) <= scales / 2 * 1.0001).all()
    np.testing.assert_array_equal(np.abs(values).max(axis=0), [127, 127, 127, 0, 127, 127, 127])


def test_int8_without_onnx_runtime_names_the_extra(monkeypatch):
    from bilm.inference import onnx_int8

    onnx_int8.largest_input.cache_clear()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"precision int8 requires onnx.*\.\[onnx\]'"):
        ElmoEmbedder("novels-en", precision="int8")


def rounded_product(x, weight):
    """Multiply a matrix with a weight as the documentation of `onnx_int8` says."""
    scale = np.maximum(np.abs(x).max(axis=1, keepdims=True) / np.float32(127), 1e-30)
    integers = np.rint(x / scale).astype(np.int32) @ weight.values.astype(np.int32)
    return integers * weight.scales * scale


@pytest.mark.parametrize("way", [pytest.param("int8", marks=with_onnx)])
def test_int8_product_equals_numpy(way):
    """A value near the middle of two integers may be rounded to another one."""
    from bilm.inference import onnx_int8

    random = np.random.default_rng(0)
    x = random.normal(size=(100, 64)).astype(np.float32)
    weight = Int8Matrix(*quantized(random.normal(size=(64, 32)).astype(np.float32)))
    graph = GraphWriter(onnx_int8.FULL)
    rows = graph.input("x", "B", 64)
    graph.set_rows(rows)
    graph.output(graph.product(graph.rounded(rows), "weight", weight))
    session = onnx_int8._session(graph.model("m"), 1)
    errors = np.abs(session.run(None, {"x": x})[0] - rounded_product(x, weight)).max(axis=1)
    assert np.quantile(errors, 0.95) < 1e-4 or onnx_int8.largest_input() == onnx_int8.REDUCED


@pytest.mark.parametrize("way", [pytest.param("int8", marks=with_onnx)])
def test_int8_with_inputs_of_seven_bits(way, monkeypatch):
    """Processors whose 16-bit sums overflow use this range."""
    from bilm.inference import onnx_int8

    expected = ElmoEmbedder("novels-en").embed_batch(SENTENCES)
    monkeypatch.setattr(onnx_int8, "largest_input", lambda: onnx_int8.REDUCED)
    found = ElmoEmbedder("novels-en", precision="int8").embed_batch(SENTENCES)
    check(found, expected, "int8", (0.985, 0.998))


@pytest.mark.parametrize("way", [pytest.param("int8", marks=with_onnx)])
def test_int8_does_not_import_keras(way):
    output_of(
        "import sys; from bilm import ElmoEmbedder\n"
        "ElmoEmbedder('novels-en', precision='int8').embed_sentence(['She', 'rose', '.'])\n"
        "assert not {'keras', 'tensorflow'}.intersection(sys.modules)\n"
    )
