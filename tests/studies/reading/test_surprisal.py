"""Surprisal: equal to `Scorer` in bits, aligned with the words, cumulative by direction."""

import numpy as np
import pytest
from keras import ops
from scorers import MODELS, WORDS, model_of, perplexity_of, scorer_of

from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError
from bilm.scoring.running_text import heldout_dataset, perplexity
from bilm.studies.reading import surprisal_table, word_surprisals

TEXT = [["the", "cat", "sat"], ["unheard", "日本語", "😀e\u0301"], [], ["mat"] * 40]


@pytest.fixture(scope="module", params=MODELS)
def scorer(request):
    return scorer_of(model_of(request.param))


def test_cumulative_surprisal_is_that_of_the_words_read_so_far_in_each_direction():
    scorer = scorer_of(model_of("chars"))
    (found,) = word_surprisals(scorer, [["the", "cat", "sat", "on"]])
    np.testing.assert_allclose(np.diff(found["forward_cumulative"]), found["forward"][1:])
    np.testing.assert_allclose(-np.diff(found["backward_cumulative"]), found["backward"][:-1])
    assert found["forward_cumulative"][0] == found["forward"][0]
    assert found["backward_cumulative"][-1] == found["backward"][-1]


def test_surprisal_has_word_lengths_in_characters_and_marks_unknown_words(scorer):
    found = list(word_surprisals(scorer, TEXT))[1]
    assert found["characters"].tolist() == [7, 3, 3]
    assert found["known"].tolist() == [False, True, False]
    assert {len(values) for values in found.values()} == {3}
    numbers = [values.dtype for name, values in found.items() if name.startswith(("f", "b"))
               and not name.endswith("top")]  # fmt: skip
    assert set(numbers) == {np.dtype(np.float64)} and len(numbers) == 8


STORY = [["the", "cat", "sat"], ["mat"], ["unheard", "on", "the", "mat"], [], ["on", "Москва"]]


def by_hand(model, texts, direction):
    """Return the log-probabilities of all words and the ids of the words at the predictions of the
    last of some sentences, by NumPy's softmax: float64 (T + 1, V), in the order of the sentence."""
    number = {word: i for i, word in enumerate(WORDS)}
    ids = [[number.get(w, number["<UNK>"]) for w in ("<S>", *words, "</S>")] for words in texts]
    ids = [each[::-1] if direction == "backward" else each for each in ids]
    read = [i for each in ids for i in each[:-1]]
    targets = [i for each in ids for i in each[1:]]
    places = dict.fromkeys(model.directions, np.array([read]))
    batch = {"distinct": np.arange(len(WORDS)), "places": places}
    outputs, _ = model.windows(model.encode(batch), model.zero_state(1))
    hidden = np.float64(ops.convert_to_numpy(outputs[direction][-1][0]))
    scores = hidden @ np.float64(model.softmax.kernel).T + np.float64(model.softmax.bias)
    logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    order = slice(None, None, -1 if direction == "backward" else 1)
    n = len(texts[-1]) + 1
    return logs[-n:][order], np.array(targets[-n:])[order]


@pytest.mark.parametrize("context", [0, 2, 9])
@pytest.mark.parametrize("name", ["words", "forward shared"])
def test_surprisal_entropy_rank_and_likeliest_words_equal_numpys_softmax(name, context):
    model = model_of(name)
    found = list(word_surprisals(scorer_of(model), STORY, context=context, top=3))
    for number, one in enumerate(found):
        texts = STORY[max(0, number - context) : number + 1]
        for direction in model.directions:
            logs, targets = by_hand(model, texts, direction)
            words = slice(1, None) if direction == "backward" else slice(-1)
            logs, targets = logs[words] / np.log(2), targets[words]
            own = logs[np.arange(len(targets)), targets]
            np.testing.assert_allclose(one[direction], -own, atol=1e-4)
            entropy = -(2**logs * logs).sum(axis=1)
            np.testing.assert_allclose(one[f"{direction}_entropy"], entropy, atol=1e-4)
            ranks = 1 + (logs > own[:, None]).sum(axis=1)
            assert one[f"{direction}_rank"].tolist() == ranks.tolist()
            for row, text in zip(logs, one[f"{direction}_top"], strict=True):
                best = np.argsort(-row)[:3]
                pairs = [pair.rsplit(":", 1) for pair in text.split(" ")]
                assert [word for word, _ in pairs] == [WORDS[i] for i in best]
                np.testing.assert_allclose([float(x) for _, x in pairs], -row[best], rtol=1e-3)
        if "backward" not in model.directions:
            assert np.isnan(one["backward_entropy"]).all() and np.isnan(one["backward_rank"]).all()


@pytest.mark.parametrize("batch_tokens", [3, 1024])
def test_score_with_the_whole_text_as_context_is_that_of_one_row(tmp_path, batch_tokens):
    model, text = model_of("words"), tmp_path / "text"
    story = [words for words in STORY if words]
    text.write_text("".join(f"{' '.join(words)}\n" for words in story), encoding="utf-8")
    (tmp_path / "vocab").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    dataset = heldout_dataset(str(text), Vocabulary(tmp_path / "vocab"), True)
    scorer = scorer_of(model, batch_tokens)
    found = perplexity_of(scorer.score(story, context=len(story)))
    expected = perplexity(model, dataset, 1)
    assert found.directions == pytest.approx(expected.directions, rel=1e-5)


def test_words_have_the_number_name_and_sum_of_their_region(scorer):
    marked, plain = "the cat | sat on | | mat", ["the", "cat", "sat", "on", "mat"]
    (found,) = word_surprisals(scorer, [marked], mark="|")
    (expected,) = word_surprisals(scorer, [plain])
    np.testing.assert_array_equal(found["forward_rank"], expected["forward_rank"])
    assert (found["word"], found["region"].tolist()) == (plain, [0, 0, 1, 1, 3])
    assert found["region_name"] == ["the cat", "the cat", "sat on", "sat on", "mat"]
    for direction in ("forward", "backward"):
        sums = [part.sum() for part in np.split(expected[direction], [2, 4])]
        np.testing.assert_allclose(found[f"region_{direction}"], np.repeat(sums, [2, 2, 1]))
    (named,) = word_surprisals(scorer, [marked], mark="|", region_names=["np", "vp", "x", "end"])
    assert named["region_name"] == ["np", "np", "vp", "vp", "end"]
    with pytest.raises(DataError, match="found 4 regions in 'the cat sat on mat', but 1 names"):
        next(word_surprisals(scorer, [marked], mark="|", region_names=["np"]))
    with pytest.raises(DataError, match=r"sentence 1: 'cat\|' contains the mark \|; separate it"):
        list(word_surprisals(scorer, [marked, "the cat| sat"], mark="|"))
    (empty,) = word_surprisals(scorer, ["| |"], mark="|")
    assert {len(values) for values in empty.values()} == {0}


def test_surprisal_table_reads_strings_and_lists():
    scorer = scorer_of(model_of("chars"))
    table = surprisal_table(scorer, ["the cat sat", [], ["mat"]], context=1, top=1)
    assert table["sentence"] == [0, 0, 0, 2] and table["position"] == [0, 1, 2, 0]
    assert {len(values) for values in table.values()} == {4}
