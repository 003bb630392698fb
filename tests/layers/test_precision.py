"""`precision="bfloat16"`: the vectors of an embedder are near those of float32."""

import numpy as np
import pytest

from bilm.embedding.embedder import ElmoEmbedder
from bilm.language_model import BiLM
from bilm.options.run_options import load_run_options
from bilm.storage.hdf5 import save_hdf5
from bilm.storage.names import stored_values

SENTENCES = [
    ["The", "bank", "closed", "early", "."],
    ["She", "sat", "on", "the", "bank", "of", "the", "river", "and", "waited", "."],
    ["Donaudampfschifffahrtsgesellschaftskapitän"],
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A model with random weights in two files."""
    from bilm.options.schema import write as write_options

    folder = tmp_path_factory.mktemp("model")
    options = load_run_options("tiny").model
    model = BiLM(options)
    model.build()
    write_options(folder / "options.json", options.for_export())
    save_hdf5(folder / "weights.hdf5", stored_values(model))
    return folder / "options.json", folder / "weights.hdf5"


def test_bfloat16_vectors_are_near_those_of_float32(stored):
    exact = ElmoEmbedder(*stored).embed_batch(SENTENCES)
    rounded = ElmoEmbedder(*stored, precision="bfloat16").embed_batch(SENTENCES)
    for a, b in zip(exact, rounded, strict=True):
        assert b.dtype == np.float32
        assert not np.array_equal(a, b)
        for layer_a, layer_b in zip(a, b, strict=True):
            assert np.linalg.norm(layer_a - layer_b) < 0.02 * np.linalg.norm(layer_a)
            cosine = (layer_a * layer_b).sum(-1)
            cosine /= np.linalg.norm(layer_a, axis=-1) * np.linalg.norm(layer_b, axis=-1)
            assert cosine.min() > 0.999
