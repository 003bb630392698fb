"""`ElmoSentences` in the real sentence-transformers."""

import json
from importlib.util import find_spec

import numpy as np
import pytest
from stored_files import CASE

if find_spec("sentence_transformers") is None:
    pytest.skip("needs the extra sentence-transformers: make test-clients", allow_module_level=True)
from sentence_transformers import SentenceTransformer

from bilm.errors import WeightsError
from bilm.integrations.sentence_module import ElmoSentences

pytestmark = pytest.mark.clients
TEXTS = ["The bank closed .", "", "a", "She saw the bank"] * 3


def module(**how):
    return SentenceTransformer(modules=[ElmoSentences(str(CASE), **how)], device="cpu")


@pytest.mark.parametrize("how", [{}, {"layers": "top", "pool": "max"}, {"layers": [0, 2]}])
def test_encode_equals_sentence_vectors(stored_embedder, how):
    model = module(**how)
    found = model.encode(TEXTS, batch_size=5)
    expected = stored_embedder.sentence_vectors([text.split() for text in TEXTS], **how)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected.reshape(len(TEXTS), -1), rtol=0, atol=2e-6)
    assert model.get_embedding_dimension() == found.shape[1]


def test_saved_sentence_transformer_loads_and_refuses_other_weights(tmp_path):
    model = module(layers="top")
    model.save(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), trust_remote_code=True, device="cpu")
    np.testing.assert_array_equal(loaded.encode(TEXTS), model.encode(TEXTS))
    prompted = model.encode("the bank", prompt="She saw ")
    np.testing.assert_allclose(prompted, model.encode("She saw the bank"), atol=2e-6)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "digest": "0" * 64}))
    with pytest.raises(WeightsError, match=r"files have changed .* since this module was created"):
        SentenceTransformer(str(tmp_path), trust_remote_code=True, device="cpu")
