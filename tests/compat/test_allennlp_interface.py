"""`bilm.allennlp`: AllenNLP's interface, its numbers, and programs in circulation."""

import copy
import json
import pickle
import tarfile

import keras
import numpy as np
import pytest
from command_runs import output_of, run_code
from conftest import golden_cases
from golden_models import model_in, sentences_of

if keras.backend.backend() != "torch":
    pytest.skip("with KERAS_BACKEND=torch: make test-clients", allow_module_level=True)
import h5py
import torch

from bilm.allennlp import Elmo, ElmoEmbedder, _ElmoBiLm, batch_to_ids
from bilm.errors import DataError, WeightsError

pytestmark = pytest.mark.clients

CASES = [case.values[0] for case in golden_cases("allennlp")]
SENTENCES = [["the", "bank", "closed"], [], ["a"], ["x" * 80, "日本語", "the"]]


def files(case):
    return case / "options.json", model_in(case)


@pytest.fixture(params=CASES, ids=lambda path: path.name)
def case(request):
    return request.param


def test_golden_layers_of_allennlp(case):
    embedder = ElmoEmbedder(*files(case))
    lstm = _ElmoBiLm(*files(case))
    with h5py.File(case / "expected.hdf5") as expected:
        for k, words in enumerate(sentences_of(case)):
            wanted = expected[f"sentence_{k}"][()]
            np.testing.assert_allclose(embedder.embed_sentence(words), wanted, atol=1e-5)
            with torch.no_grad():
                found = lstm(batch_to_ids([words]))
            layers = torch.stack([layer[0, 1:-1] for layer in found["activations"]]).numpy()
            np.testing.assert_allclose(layers, wanted, atol=1e-5)


def test_ids_have_no_marks_of_sentences_and_50_characters():
    ids = batch_to_ids(SENTENCES)
    assert ids.shape == (4, 3, 50) and ids.dtype == torch.int64
    assert (ids[1] == 0).all() and (ids[2, 1:] == 0).all() and (ids[2, 0] > 0).all()
    assert batch_to_ids([]).shape == (0, 0, 50)
    a = [259, ord("a") + 1, 260] + 47 * [261]
    assert ids[2, 0].tolist() == a


@pytest.mark.parametrize("batch", ["the cat", ["the cat"], [["a"], "b"], [{"a", "b"}], [None]])
def test_a_string_or_a_set_is_not_a_list_of_words(batch):
    with pytest.raises(DataError, match="expected"):
        batch_to_ids(batch)


@pytest.fixture(scope="module")
def elmo():
    return Elmo(*files(CASES[0]), 2, dropout=0.0)


def test_inputs_that_are_not_character_ids_are_refused(elmo):
    ids = torch.ones((1, 2, 50), dtype=torch.int64)
    for other in (ids[..., :30], ids.to(torch.uint8), 262 * ids, -ids):
        with pytest.raises(DataError, match="expected the result of batch_to_ids: an int64 tensor"):
            elmo(other)


@pytest.mark.parametrize("kept", [False, True])
def test_vectors_do_not_depend_on_the_batch_and_padding_is_zero(kept):
    elmo = Elmo(*files(CASES[0]), 1, dropout=0.0, keep_sentence_boundaries=kept).eval()
    with torch.no_grad():
        whole = elmo(batch_to_ids(SENTENCES))
        (vectors,), mask = whole["elmo_representations"], whole["mask"]
        assert mask.dtype == torch.bool
        assert mask.sum(dim=1).tolist() == [len(words) + 2 * kept for words in SENTENCES]
        assert (vectors[~mask] == 0).all()
        for k, words in enumerate(SENTENCES):
            if words:
                alone = elmo(batch_to_ids([words]))["elmo_representations"][0][0]
                torch.testing.assert_close(vectors[k, : len(alone)], alone, atol=1e-6, rtol=0)


def test_further_axes_are_kept(elmo):
    ids = batch_to_ids([["the", "bank"], ["a"]])
    found = elmo(torch.stack([ids, ids]))
    assert found["elmo_representations"][1].shape == (2, 2, 2, elmo.get_output_dim())
    assert found["mask"].tolist() == [[[True, True], [True, False]]] * 2


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda elmo: pickle.loads(pickle.dumps(elmo))])
def test_copies_and_pickles_have_the_values_of_their_original(copied, requires_grad):
    elmo = Elmo(*files(CASES[0]), 2, requires_grad=requires_grad, dropout=0.0)
    elmo._mixes[1].gamma.assign(1.7)
    other = copied(elmo)
    found, expected = (e(batch_to_ids(SENTENCES))["elmo_representations"] for e in (other, elmo))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
    found, expected = ([p.requires_grad for p in e.parameters()] for e in (other, elmo))
    assert found == expected
    elmo._mixes[1].gamma.assign(2.0)
    assert float(other._mixes[1].gamma.value.detach()) == pytest.approx(1.7)


class Tagger(torch.nn.Module):
    """As in programs for AllenNLP: only the import of Elmo has changed."""

    def __init__(self, options_file, weight_file, **arguments):
        super().__init__()
        self.elmo = Elmo(options_file, weight_file, 1, **arguments)
        self.output = torch.nn.Linear(self.elmo.get_output_dim(), 3)

    def forward(self, sentences):
        found = self.elmo(batch_to_ids(sentences))
        return self.output(found["elmo_representations"][0]), found["mask"]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_mix_is_trained_and_the_bilm_if_requested(requires_grad):
    torch.manual_seed(0)
    tagger = Tagger(*files(CASES[0]), requires_grad=requires_grad, dropout=0.1)
    before = {name: p.detach().clone() for name, p in tagger.named_parameters()}
    optimizer = torch.optim.Adam([p for p in tagger.parameters() if p.requires_grad], 0.05)
    labels = torch.tensor([[0, 1, 2], [0, 1, 2]])
    losses = []
    for _ in range(30):
        scores, mask = tagger([["the", "bank", "closed"], ["a", "the", "x"]])
        loss = torch.nn.functional.cross_entropy(scores[mask], labels[mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    changed = {name for name, p in tagger.named_parameters() if not torch.equal(p, before[name])}
    of_bilm = {name for name in before if "_elmo_lstm" in name}
    assert of_bilm and bool(changed & of_bilm) == requires_grad
    assert {name for name in before if "_mixes" in name} <= changed


def test_state_dict_restores_the_module(tmp_path):
    first, second = (Tagger(*files(CASES[0]), dropout=0.5) for _ in range(2))
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(0.01)
    torch.save(first.state_dict(), tmp_path / "t.pt")
    second.load_state_dict(torch.load(tmp_path / "t.pt"))
    first.eval(), second.eval()
    with torch.no_grad():
        torch.testing.assert_close(first([["a", "b"]])[0], second([["a", "b"]])[0])


def state_dict_of(case, tmp_path):
    """The tensors of the ELMo in an AllenNLP model, with the names in AllenNLP's `Elmo`."""
    path = case / "model" / "weights.th"
    if not path.exists():
        with tarfile.open(case / "model.tar.gz") as file:
            file.extract("weights.th", tmp_path, filter="data")
        path = tmp_path / "weights.th"
    with h5py.File(case / "expected.hdf5") as expected:
        prefix = expected.attrs["prefix"]
    stored = torch.load(path, map_location="cpu", weights_only=False)
    stored = {k.removeprefix(prefix): v for k, v in stored.items() if k.startswith(prefix)}
    return {k: v for k, v in stored.items() if k.startswith(("_elmo_lstm.", "scalar_mix_"))}


def test_golden_load_state_dict_reads_names_of_allennlp(case, tmp_path):
    stored = state_dict_of(case, tmp_path)
    with h5py.File(case / "expected.hdf5") as expected:
        if "scalar_parameters" not in expected:
            pytest.skip("the case has no mix")
        normalizes = bool(expected.attrs["do_layer_norm"])
        tagger = torch.nn.Module()
        n_mixes = len(expected["gamma"])
        tagger.elmo = Elmo(*files(case), n_mixes, do_layer_norm=normalizes, dropout=0.0)
        with torch.no_grad():
            for parameter in tagger.parameters():
                parameter.zero_()
        found = tagger.load_state_dict({f"elmo.{name}": value for name, value in stored.items()})
        assert not found.missing_keys and not found.unexpected_keys
        for k, words in enumerate(sentences_of(case)):
            if words:
                with torch.no_grad():
                    mixes = tagger.elmo(batch_to_ids([words]))["elmo_representations"]
                for vectors, wanted in zip(mixes, expected[f"mix_{k}"], strict=True):
                    np.testing.assert_allclose(vectors[0].numpy(), wanted, atol=1e-5)


def test_load_state_dict_of_another_elmo_of_allennlp_is_an_error(tmp_path):
    case = next(case for case in CASES if case.name == "bcn_two_mixes")
    stored = state_dict_of(case, tmp_path)
    with pytest.raises(RuntimeError, match="scalar_mix_1"):
        Elmo(*files(case), 1).load_state_dict(stored)
    name = "_elmo_lstm._token_embedder._projection.bias"
    with pytest.raises(WeightsError, match="state dict of AllenNLP: CNN_proj/b_proj is missing"):
        Elmo(*files(case), 2).load_state_dict({k: v for k, v in stored.items() if k != name})


def test_dropout_is_applied_in_training_only():
    elmo = Elmo(*files(CASES[0]), 1, dropout=0.5)
    ids = batch_to_ids([["the", "bank"] * 10])
    assert (elmo(ids)["elmo_representations"][0] == 0).float().mean() > 0.3
    assert (elmo.eval()(ids)["elmo_representations"][0] == 0).float().mean() < 0.05


def test_fixed_mix_is_not_trained():
    elmo = Elmo(*files(CASES[0]), 1, dropout=0, scalar_mix_parameters=[-9e10, 1, -9e10][:3])
    assert not [p for p in elmo.parameters() if p.requires_grad]


def test_other_backend_is_an_error_that_names_the_variable(monkeypatch):
    done = run_code("import bilm.allennlp", KERAS_BACKEND="jax")
    assert "requires the PyTorch backend of Keras, but Keras runs on jax" in done.stderr
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    output_of("import bilm.allennlp")


def test_batch_to_embeddings_pads_with_zeros():
    layers, mask = ElmoEmbedder(*files(CASES[0])).batch_to_embeddings([["a"], ["the", "bank"]])
    assert mask.tolist() == [[True, False], [True, True]]
    assert (layers[0, :, 1] == 0).all() and layers.shape[2] == 2


def test_embed_file_writes_the_datasets_of_allennlp(tmp_path):
    embedder, output = ElmoEmbedder(*files(CASES[0])), tmp_path / "vectors.hdf5"
    lines = ["the bank closed\n", "日本語\n"]
    embedder.embed_file(lines, output, "average", batch_size=2)
    with h5py.File(output) as file:
        assert json.loads(file["sentence_to_index"][0]) == {"the bank closed": "0", "日本語": "1"}
        for k, line in enumerate(lines):
            expected = embedder.embed_sentence(line.split()).mean(axis=0)
            np.testing.assert_allclose(file[str(k)], expected, rtol=0, atol=1e-6)
    embedder.embed_file(lines, output, forget_sentences=True)
    with h5py.File(output) as file:
        assert list(file) == ["0", "1"] and file["1"].shape[:2] == (embedder.embedder.n_layers, 1)
    with pytest.raises(DataError, match="line 2: blank, expected a sentence"):
        embedder.embed_file(["a\n", "\n"], output)
