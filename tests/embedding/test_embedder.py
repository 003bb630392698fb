"""Sentences through `ElmoEmbedder`: the reference's numbers, whatever the batch or the cache."""

import json

import h5py
import numpy as np
import pytest
from elmo_models import WORDS
from stored_files import check_vectors, stored_values

from bilm.elmo.layer import Elmo
from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import DataError, OptionsError
from bilm.language_model import BiLM
from bilm.model import BidirectionalLanguageModel, dump_token_embeddings
from bilm.options.model_options import ModelOptions
from bilm.storage.hdf5 import save_hdf5

ATOL = 1e-5
FILES = WORDS / "options.json", WORDS / "weights.hdf5"
SENTENCES = [
    line.split()
    for line in [
        "It was the best of times , it was the worst of times .",
        "Где ты был вчера вечером ? — спросила она .",
        "彼 は 昨日 銀行 で お金 を 引き出し ました 。",
        "The end 😀",
        "",
        "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft ?",
        "https://example.org/a/very/long/address/that/is/longer/than/fifty/bytes?q=1 works",
        "превысокомногорассмотрительствующий 電気通信大学大学院情報理工学研究科電子計算機 x",
        "No .",
        "",
        "She went to the bank to withdraw money , and the bank by the river was closed .",
        "a " * 70,
        "<S> says hello to </S>",
        "caf\u00e9 cafe\u0301 \u2028 zero\u200dwidth",
    ]
]


@pytest.fixture(scope="module")
def embedder():
    return ElmoEmbedder(*FILES)


def test_golden_token_table(tmp_path):
    outfile = tmp_path / "tokens.hdf5"
    dump_token_embeddings(WORDS / "vocab.txt", *FILES, outfile)
    with h5py.File(outfile) as found, h5py.File(WORDS / "token_embeddings.hdf5") as expected:
        np.testing.assert_allclose(found["embedding"], expected["embedding"], atol=ATOL)
        assert found["embedding"].dtype == np.float32
    BidirectionalLanguageModel(*FILES, use_character_inputs=False, embedding_weight_file=outfile)
    with pytest.raises(DataError, match=r"missing\.txt"):
        dump_token_embeddings(tmp_path / "missing.txt", *FILES, tmp_path / "other.hdf5")
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.hdf5"]


def test_vectors_do_not_depend_on_order_or_batches(embedder, monkeypatch):
    expected = [embedder.embed_sentence(words) for words in SENTENCES]
    check_vectors(embedder.embed_batch(SENTENCES), expected)
    for batch_tokens in (1, 7, 64):  # also cuts sentences, whose state is carried over
        order = np.random.default_rng(batch_tokens).permutation(len(SENTENCES))
        monkeypatch.setattr(embedder, "batch_tokens", batch_tokens)
        found = embedder.embed_batch([SENTENCES[i] for i in order])
        check_vectors(found, [expected[i] for i in order])


def test_a_stream_is_read_lazily_and_in_order(embedder, monkeypatch):
    monkeypatch.setattr(embedder, "batch_tokens", 8)
    n_read = 0

    def stream():
        nonlocal n_read
        for i in range(100):
            n_read += 1
            yield [f"word{i}"] * (i % 5)

    results = embedder.embed_sentences(stream(), layers="top")
    assert n_read == 0
    assert next(results).shape == (0, embedder.dim)
    assert n_read < 80
    assert [len(vectors) for vectors in results] == [i % 5 for i in range(1, 100)]
    assert n_read == 100


def test_embed_as_completed_yields_each_sentence_once(embedder, monkeypatch):
    monkeypatch.setattr(embedder, "batch_tokens", 16)
    sentences = [[f"word{i}"] * (i % 5) for i in range(60)]
    found = list(embedder.embed_as_completed(iter(sentences)))
    numbers = [number for number, _, _ in found]
    assert sorted(numbers) == list(range(60))
    not_empty = [number for number in numbers if sentences[number]]
    assert not_empty != sorted(not_empty)
    assert [words for _, words, _ in found] == [sentences[number] for number in numbers]
    expected = embedder.embed_batch(sentences)
    for number, _, vectors in found:
        np.testing.assert_array_equal(vectors, expected[number])


def test_empty_sentences_and_layers(embedder):
    assert embedder.embed_sentence([]).shape == (embedder.n_layers, 0, embedder.dim)
    assert embedder.embed_batch([]) == []
    assert list(embedder.embed_sentences(iter(()))) == []
    assert list(embedder.embed_as_completed([])) == []
    assert [v.shape[1] for v in embedder.embed_sentences([[], []])] == [0, 0]
    embedder.warm_up([])
    words = ["a", "bank", "."]
    layers = embedder.embed_sentence(words)
    assert repr(embedder).endswith(f"hdf5; {len(layers)} layers, {layers.shape[2]} features>")
    for choice, expected in [
        ("top", layers[-1]),
        ("average", layers.mean(axis=0)),
        ("sum", layers.sum(axis=0)),
        ("0,2", layers[[0, 2]]),
        ([1], layers[[1]]),
    ]:
        np.testing.assert_allclose(embedder.embed_sentence(words, choice), expected, rtol=1e-6)
        means = embedder.sentence_vectors([words, []], choice)
        np.testing.assert_allclose(means[0], expected.mean(axis=-2), atol=ATOL)
        assert not means[1].any()
        assert embedder.sentence_vectors([], choice).shape == (0, *means[0].shape)
    (mean,) = embedder.sentence_vectors([words])
    np.testing.assert_allclose(mean, layers.mean(axis=(0, 1)), atol=ATOL)


@pytest.mark.parametrize("layers", ["average", "top", "all"])
def test_sentence_vectors_normalized(embedder, layers):
    """As simple_elmo's get_elmo_vector_average, which divides by the norm over all layers."""
    sentences = [["a", "bank", "."], [], ["a"]]
    means = embedder.sentence_vectors(sentences, layers)
    found = embedder.sentence_vectors(sentences, layers, normalize=True)
    assert found.dtype == np.float32 and found.shape == means.shape
    for mean, vector in zip(means[[0, 2]], found[[0, 2]], strict=True):
        np.testing.assert_allclose(vector, mean / np.sqrt((mean**2).sum()), rtol=1e-5)
    assert not found[1].any()  # simple_elmo has values that are not numbers there
    assert embedder.sentence_vectors([], layers, normalize=True).shape == (0, *means[0].shape)


@pytest.mark.parametrize("layers", ["bottom", "", [], "3", [-1], [0.5], "1,", 1])
def test_missing_layers_are_refused(embedder, layers):
    with pytest.raises(OptionsError, match=r"layers is .*, expected all, top, average, sum or a l"):
        embedder.embed_sentences([], layers)


@pytest.mark.parametrize("sentence", [b"bytes", 3, None, {"a", "b"}, {"a": 1}])
def test_sentences_of_other_types_are_refused(embedder, sentence):
    with pytest.raises(DataError, match=r"sentence 1 is .* list of words"):
        embedder.embed_batch([["a"], sentence])
    with pytest.raises(DataError, match=r"the batch is 'a string' \(str\), expected a list of s"):
        embedder.embed_batch("a string")
    with pytest.raises(DataError, match="expected a list of sentences"):
        embedder.sentence_vectors({("a",), ("b",)})


@pytest.mark.parametrize(
    "word, message",
    [
        (1, r"word 1 is 1 \(int\); expected a string"),
        (None, r"word 1 is None \(NoneType\)"),
        (float("nan"), r"word 1 is nan \(float\)"),
        (b"b", r"word 1 is b'b' \(bytes\)"),
        (["b"], r"word 1 is \['b'\] \(list\)"),
    ],
)
def test_words_of_other_types_are_refused(embedder, word, message):
    with pytest.raises(DataError, match=f"sentence 1, {message}"):
        embedder.embed_batch([["a"], ["a", word]])


def test_text_given_as_a_word_is_refused(embedder):
    """A word with one blank has a vector, as in "20 000"."""
    assert embedder.embed_sentence(["20 000", "euros"]).shape[1] == 2
    with pytest.raises(DataError, match="the word 'the bank closed' contains several blanks"):
        embedder.sentence_vectors([["the bank closed"], ["it rained"]])


def test_strings_are_split_at_blanks(embedder):
    lines = ["The bank  closed .", "", "x"]
    expected = embedder.embed_batch([line.split() for line in lines])
    check_vectors(embedder.embed_batch(lines), expected)


@pytest.mark.parametrize("layers", ["all", "top"])
def test_empty_words_are_padding(embedder, layers):
    words = ["so", "close", "."]
    expected = embedder.embed_sentence(words, layers)
    for padded in (["so", "close", ".", "", ""], ["", "so", "", "", "close", "."]):
        found = embedder.embed_batch([padded, words, ["", ""]], layers)
        real = [k for k, word in enumerate(padded) if word]
        np.testing.assert_allclose(found[0][..., real, :], expected, atol=ATOL)
        assert not np.delete(found[0], real, axis=-2).any()
        assert found[0].shape[-2] == len(padded) and found[2].shape[-2] == 2
        assert not found[2].any()


def write_word_model(folder, bidirectional=True):
    """Write a model that reads 5 words; return the paths of its options and weights."""
    lstm = {"dim": 8, "projection_dim": 6, "n_layers": 2}
    options = {"bidirectional": bidirectional, "lstm": lstm}
    (folder / "options.json").write_text(json.dumps(options))
    (folder / "vocab.txt").write_text("the\n<S>\n</S>\n<UNK>\nbank\n")
    model = BiLM(ModelOptions.from_dict(options), n_tokens=5, padding=True)
    model.build()
    save_hdf5(folder / "weights.hdf5", stored_values(model))
    return folder / "options.json", folder / "weights.hdf5"


@pytest.mark.parametrize(
    "read",
    [
        lambda files, vocabulary: ElmoEmbedder(*files, vocab_file=vocabulary),
        lambda files, vocabulary: Elmo(*files).batcher(vocabulary),
        lambda files, vocabulary: BidirectionalLanguageModel(*files).batcher(vocabulary),
    ],
    ids=["ElmoEmbedder", "Elmo", "BidirectionalLanguageModel"],
)
def test_another_vocabulary_of_equal_size_is_refused(tmp_path, read):
    files, other = write_word_model(tmp_path), tmp_path / "other.txt"
    other.write_text((tmp_path / "vocab.txt").read_text())
    read(files, other)
    other.write_text("bank\n<S>\n</S>\n<UNK>\nthe\n")
    with pytest.raises(DataError, match=r"other\.txt: differs from .*vocab\.txt.* at word 1"):
        read(files, other)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_embedder_of_a_model_that_reads_words(tmp_path, bidirectional):
    files = write_word_model(tmp_path, bidirectional)
    embedder = ElmoEmbedder(*files, vocab_file=tmp_path / "vocab.txt")
    found = embedder.embed_batch([["the", "river"], ["the", "bank", "the"], []])
    ids = np.array([[2, 1, 4, 3, 0], [2, 1, 5, 1, 3], [2, 3, 0, 0, 0]])
    layers = BidirectionalLanguageModel(*files, use_character_inputs=False)(ids)["lm_embeddings"]
    check_vectors(found, [layers[0][:, :2], layers[1], layers[2][:, :0]])
    assert ElmoEmbedder(*files).vocab_file == tmp_path / "vocab.txt"  # beside the options
    with pytest.raises(OptionsError, match="reads words"):
        dump_token_embeddings(tmp_path / "vocab.txt", *files, tmp_path / "tokens.hdf5")
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n")
    with pytest.raises(DataError, match="3 words, but the model was trained with 5"):
        ElmoEmbedder(*files, vocab_file=tmp_path / "vocab.txt")
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(OptionsError, match="vocab_file"):
        ElmoEmbedder(*files)
