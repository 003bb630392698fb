"""Public names: `~` in paths, shapes of string inputs, TensorFlow 1 graphs, copies."""

import copy
import pickle
from dataclasses import fields
from enum import Enum
from inspect import Parameter, signature

import pytest
import tensorflow as tf
from elmo_models import WORDS as CASE

import bilm
from bilm.commands.main import cli
from bilm.data.readers import Reading
from bilm.errors import BilmError, WeightsError
from bilm.options.run_options import RunOptions
from bilm.training.devices import make_strategy
from bilm.training.settings import RunSettings


def test_tilde_is_expanded_in_every_path(monkeypatch):
    monkeypatch.setenv("HOME", str(CASE))
    files = "~/options.json", "~/weights.hdf5"
    n_words = bilm.Vocabulary("~/vocab.txt").size
    assert bilm.UnicodeCharsVocabulary("~/vocab.txt", 50).size == n_words
    assert bilm.Elmo(*files, embedding_weight_file="~/token_embeddings.hdf5").n_words == n_words
    with pytest.raises(WeightsError, match=f"{CASE}/none.hdf5: no such file; expected a softmax"):
        bilm.load_scorer(files[0], weight_file=files[1], softmax_file="~/none.hdf5")


@pytest.mark.parametrize(
    "given", [tf.constant([[["the"]]]), tf.strings.split(["the cat sat", "hello"])]
)
def test_elmo_refuses_strings_of_other_shapes(given):
    layer = bilm.Elmo(CASE)
    with pytest.raises(ValueError, match=r"strings have shape \(.*, expected tokens \(B, T\)"):
        layer(given)


def test_model_in_a_tensorflow_1_graph_is_refused():
    with tf.Graph().as_default(), pytest.raises(BilmError, match="remove disable_eager_execution"):
        bilm.BidirectionalLanguageModel(CASE)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_copy_of_bidirectional_language_model_is_refused(copied):
    model = bilm.BidirectionalLanguageModel(CASE)
    with pytest.raises(BilmError, match=r"use bilm\.ElmoEmbedder or bilm\.Elmo, which"):
        copied(model)


RUN = {"input": "text", "output": "folder"}
OF_BILM_TF = {"model": "options_file", "weights": "weight_file", "vocab": "vocab_file"}
FUNCTIONS = {  # of commands, with other names of their options
    "text": (bilm.text, {}),
    "vocab": (bilm.vocab, {}),
    "train": (bilm.train, RUN),
    "finetune": (bilm.finetune, RUN),
    "embed": (bilm.dump_bilm_embeddings, {**OF_BILM_TF, "shard": "share"}),
}
# Options of commands only: `TextSigns` describes, `Ngrams` counts, `Devices` has the workers.
ONLY = {"help", "json", "quiet", "profile", "ngrams", "workers", "worker_index", "join_minutes"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_has_the_options_of_its_command_with_their_defaults(name):
    function, renamed = FUNCTIONS[name]
    parameters = signature(function).parameters
    more = [Reading] if "reading" in parameters else [RunOptions, RunSettings]
    others = {field.name: field.default for cls in more for field in fields(cls)}
    others |= {name: each.default for name, each in signature(make_strategy).parameters.items()}
    for option in cli.get_command(None, name).params:
        flag = option.opts[0].lstrip("-")
        argument = renamed.get(flag, flag)
        is_set = not isinstance(option.default, Enum) and option.default is not None
        if flag in ONLY or option.required:
            continue
        if argument in parameters:
            expected = option.default if is_set else False if option.is_flag else None
            assert parameters[argument].default in (expected, Parameter.empty), flag
        else:
            assert argument in others and (not is_set or others[argument] == option.default), flag
