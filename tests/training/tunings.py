"""Tiny fine-tunings, and the weights with which one goes into its first step."""

from unittest import mock

import numpy as np
import pytest
from conftest import GOLDEN, golden_cases
from tiny_runs import HELDOUT, TEXT, VOCABULARY, load_run, on_cpu

from bilm.data.vocabulary import vocabulary_of
from bilm.scoring.perplexity import heldout_dataset, perplexity
from bilm.storage.names import stored_values
from bilm.training import run as training
from bilm.training.finetuning import finetune

TF1_CHARS, TF1_WORDS = (GOLDEN / "checkpoint" / name for name in ("chars", "tokens"))
STORED = [case.values[0] for case in golden_cases("inference")]
FILES = {"source": STORED[0] / "options.json", "weight_file": STORED[0] / "weights.hdf5"}
WORDS = VOCABULARY.read_text(encoding="utf-8").splitlines()
# Words of the old vocabulary and others, in another order.
NEW_WORDS = [*WORDS[:3], "entirely", *WORDS[:30:-2], "new", *WORDS[5:12]]
SMALL = {"batch_size": 2, "unroll_steps": 5, "n_negative_samples_batch": 8}


def write_new_words(folder):
    """Write the new vocabulary; return its file."""
    path = folder / "new_words.txt"
    path.write_text("\n".join(NEW_WORDS) + "\n", encoding="utf-8")
    return path


def tune(source, save_dir, n_steps=1, changes=SMALL, strategy=None, **arguments):
    arguments |= {"strategy": strategy or on_cpu(), "n_steps": n_steps}
    return finetune(source, TEXT, save_dir, changes=changes, **arguments)


class TakenError(Exception):
    """Carries the weights out of a run that is not to take its first step."""


def first_weights(*arguments, **keywords):
    """Give the weights with which a fine-tuning goes into its first step, by stored name."""

    def take(self, iterator, step):
        assert step == 0
        raise TakenError(stored_values(self.model))

    with mock.patch.object(training.Trainer, "step", take), pytest.raises(TakenError) as taken:
        tune(*arguments, **keywords)
    return taken.value.args[0]


def heldout_perplexity(source):
    model = load_run(source)
    vocab = vocabulary_of(VOCABULARY, model.options, model.n_tokens)
    dataset = heldout_dataset(HELDOUT, vocab, model.options.bidirectional)
    return perplexity(model, dataset, SMALL["batch_size"])


def assert_same(found, expected, only=lambda name: True):
    names = [name for name in expected if only(name)]
    assert names and all(name in found for name in names)
    for name in names:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
