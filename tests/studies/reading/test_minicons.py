"""Definitions of surprisal, entropy, rank, likeliest words and regions are those of minicons."""

from importlib.util import find_spec
from types import SimpleNamespace

import keras
import numpy as np
import pytest

if find_spec("minicons") is None or keras.backend.backend() != "tensorflow":
    pytest.skip("needs minicons: make test-clients", allow_module_level=True)
from bilm.inference.softmax import Softmax
from bilm.scoring.scores import Predicted, Score
from bilm.studies.reading.surprisal import columns_of, columns_of_regions

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore")]
WORDS = ["<s>", "</s>", "she", "he", "rose", "sat", "from", "on", "her", "the", "chair", "quickly"]
SENTENCE = ["she", "rose", "from", "the", "chair", "quickly"]


@pytest.fixture(scope="module")
def transformer():
    """A scorer of minicons: a transformer of random weights with one token per word."""
    import torch
    from minicons.scorer import IncrementalLMScorer
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="</s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    marks = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>", "unk_token": "</s>"}
    words = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=12, n_embd=16, n_layer=2, n_head=2, initializer_range=0.9)
    return IncrementalLMScorer(GPT2LMHeadModel(config).eval(), "cpu", tokenizer=words)


@pytest.fixture(scope="module")
def logs(transformer):
    """Its log-probabilities of all words at each place of `SENTENCE` and at its end, (T + 1, V)."""
    prefixes = [" ".join(["<s>", *SENTENCE[:i]]) for i in range(len(SENTENCE) + 1)]
    return transformer.next_word_distribution(prefixes)


def found_of(logs):
    logs, ids = logs.numpy(), np.array([WORDS.index(word) for word in [*SENTENCE, "</s>"]])
    softmax = Softmax(np.eye(len(WORDS), dtype=np.float32), np.zeros(len(WORDS), np.float32))
    records = softmax.described(logs, ids, 3)
    known, predicted = np.ones(len(ids), bool), {"forward": Predicted.of(records, WORDS)}
    return columns_of(Score(records["log"], None, SENTENCE, known, predicted))


def test_surprisal_rank_and_likeliest_words_equal_minicons(transformer, logs):
    how = {"surprisal": True, "base_two": True, "rank": True}
    (scored,) = transformer.token_score(" ".join(["<s>", *SENTENCE]), **how)
    words, bits, ranks = zip(*scored[1:], strict=True)
    found = found_of(logs)
    assert (found["word"], found["forward_rank"].tolist()) == ([*words], [*ranks])
    np.testing.assert_allclose(found["forward"], bits, rtol=1e-4)
    for text, words, shares in zip(
        found["forward_top"], *transformer.topk(logs[:-1], 3), strict=True
    ):
        pairs = [pair.rsplit(":", 1) for pair in text.split(" ")]
        assert [word for word, _ in pairs] == words
        np.testing.assert_allclose([2 ** -float(bits) for _, bits in pairs], shares, rtol=2e-3)


def test_entropy_equals_minicons(logs):
    from minicons.scorer import MaskedLMScorer  # the class of minicons with a method for entropy

    given = SimpleNamespace(cloze_distribution=lambda queries: logs)
    expected = MaskedLMScorer.entropy(given, None, base_two=True)[:-1]
    np.testing.assert_allclose(found_of(logs)["forward_entropy"], expected.numpy(), rtol=1e-4)


def test_regions_equal_minicons_conditional_scores(transformer, logs):
    places = np.array([0, 0, 1, 1, 1, 2])
    found = columns_of_regions(found_of(logs), places)
    names = list(dict.fromkeys(found["region_name"]))
    for k, stimulus in enumerate(names):
        prefix = " ".join(["<s>", *names[:k]])
        (expected,) = transformer.conditional_score(
            [prefix], [stimulus], base_two=True, reduction=lambda x: -x.sum(0).item()
        )
        assert found["region_forward"][places == k] == pytest.approx(expected, rel=1e-4)
