"""Options of runs and of stored models: keys, values, defaults, shipped sizes."""

import pytest
from options_examples import CHAR_CNN, LSTM, RUN, dotted_names, edited, stored

from bilm.errors import OptionsError
from bilm.options.model_options import LstmOptions, ModelOptions
from bilm.options.run_options import RunOptions, load_model_options, load_run_options
from bilm.tensors import n_parameters

OPTIONAL = {"char_cnn", "char_cnn.n_highway", "n_train_tokens", "n_tokens_vocab"}
OPTIONAL |= {f"lstm.{name}" for name in ("cell_clip", "proj_clip", "use_skip_connections")}


def test_run_options_of_the_reference_are_read(tmp_path):
    exported = RUN | {"bilm_export": "1234"}
    options = load_run_options(stored(tmp_path, exported))
    assert options.lstm == LstmOptions(10, 6, 2, 3, 3, True)
    assert options.char_cnn.filters == ((1, 4), (2, 5), (3, 6))
    assert options.char_cnn.embedding.dim == 4
    assert (options.learning_rate, options.sample_softmax) == (0.2, True)
    assert options.model == ModelOptions(options.lstm, options.char_cnn, True)
    added = {"learning_rate": 0.2, "sample_softmax": True, "share_embedding_softmax": False}
    added |= {"optimizer": "adagrad", "warmup_steps": 0, "decay": "none"}
    added |= {"decay_start": 0.0, "decay_floor": 0.0, "state_reset_probability": 0.0}
    added |= {"softmax_bias": "zeros"}
    added |= {"variational_dropout": False, "embedding_dropout": 0.0, "weight_decay": 0.0}
    assert options.to_dict() == exported | added


def test_default_learning_rate_depends_on_the_optimizer():
    options = RunOptions.from_dict(RUN)
    assert options.replace(optimizer="adam").learning_rate == 0.002
    assert options.replace(optimizer="adam", learning_rate=0.01).learning_rate == 0.01
    assert options.replace(optimizer="adagrad", dropout=0.5).learning_rate == 0.2
    assert RunOptions.from_dict(RUN | {"optimizer": "adam"}).learning_rate == 0.002


@pytest.mark.parametrize("name", sorted(set(dotted_names(RUN)) - OPTIONAL))
def test_missing_key_is_refused_by_name(tmp_path, name):
    path = stored(tmp_path, edited(name, remove=True))
    with pytest.raises(OptionsError) as caught:
        load_run_options(path)
    assert str(caught.value).startswith(f"{path}: {name}: missing, expected ")


def test_defaults_of_optional_keys():
    values = edited("lstm", {"dim": 10, "projection_dim": 6, "n_layers": 1})
    for name in "char_cnn", "n_train_tokens", "n_tokens_vocab":
        del values[name]
    options = RunOptions.from_dict(values)
    assert options.lstm == LstmOptions(10, 6, 1, None, None, False)
    assert options.char_cnn is options.n_train_tokens is options.n_tokens_vocab is None
    nulls = values | {"char_cnn": None, "n_train_tokens": None, "n_tokens_vocab": None}
    assert RunOptions.from_dict(nulls) == options
    assert RunOptions.from_dict(edited("char_cnn.n_highway", None)).char_cnn.n_highway == 0
    assert RunOptions.from_dict(edited("char_cnn.n_highway", remove=True)).char_cnn.n_highway == 0


@pytest.mark.parametrize("name", ["n_gpus", "lstm.dims", "char_cnn.projection"])
def test_unknown_key_is_refused_for_a_new_run(name):
    last = name.split(".")[-1]
    with pytest.raises(OptionsError, match=f"^{name}: unknown key, expected one of .*") as caught:
        RunOptions.from_dict(edited(name, 1))
    assert last not in str(caught.value).split("one of")[1].split(", ")


@pytest.mark.parametrize("name", sorted(dotted_names(RUN)))
@pytest.mark.parametrize("wrong", ["3", [], {}, float("nan"), float("inf"), -1, 10**400])
def test_value_of_wrong_type_is_refused_by_name(tmp_path, name, wrong):
    path = stored(tmp_path, edited(name, wrong))
    with pytest.raises(OptionsError) as caught:
        load_run_options(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {name}") and "\n" not in message


INVALID = {
    "lstm": [None],
    "lstm.dim": [True, 10.0, 0, None],
    "lstm.projection_dim": [11],
    "lstm.cell_clip": [0, True],
    "lstm.proj_clip": [-3, 10**400],
    "lstm.use_skip_connections": [1, None],
    "bidirectional": [1, None],
    "dropout": [1.0, -0.1, False],
    "learning_rate": [0],
    "optimizer": ["sgd", ["adam"]],
    "warmup_steps": [-1, 1.5],
    "decay": ["exponential", True],
    "decay_start": [1.1],
    "decay_floor": [-0.1],
    "all_clip_norm_val": [None],
    "sample_softmax": ["true"],
    "char_cnn.activation": ["gelu"],
    "char_cnn.filters": [[[1, 4, 5]], [[1, 0]], [[1, True]], [[13, 4]]],
    "char_cnn.max_characters_per_token": [2],
    "char_cnn.n_characters": [262, 260],
    "char_cnn.n_highway": [-1],
    "share_embedding_softmax": [True],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n in INVALID for v in INVALID[n]])
def test_invalid_value_is_refused_by_name(name, value):
    with pytest.raises(OptionsError, match=f"^{name}: found .+, expected .+"):
        RunOptions.from_dict(edited(name, value))


SIZES = {"tiny": None, "compact": None, "small": 13.6, "medium": 28.0}
SIZES |= {"original": 93.6, "original_2018": 93.6}


@pytest.mark.parametrize(("name", "millions"), SIZES.items())
def test_packaged_options_have_their_size_and_round_trip(name, millions):
    options = load_run_options(name)
    assert (options.optimizer == "adagrad") == (name == "original_2018")
    assert RunOptions.from_dict(options.to_dict()) == options
    assert options.n_train_tokens is options.n_tokens_vocab is None
    assert millions is None or round(n_parameters(options.model) / 1e6, 1) == millions


def test_published_options_with_model_keys_only_load_without_warning(tmp_path, log):
    values = {"lstm": LSTM, "char_cnn": CHAR_CNN | {"n_characters": 262}}
    options = load_model_options(stored(tmp_path, values))
    assert options.bidirectional is None
    assert options.char_cnn.n_characters == 262
    assert not log.messages


def test_unknown_keys_of_a_stored_model_are_kept_with_one_warning(tmp_path, log):
    projection = {"dim": 3, "bias": None}
    values = edited("char_cnn.projection", projection) | {"clip_grad_norm": 5, "dropout": "none"}
    values["lstm"]["peephole"] = False
    path = stored(tmp_path, values)
    options = load_model_options(path)
    assert log.messages == [
        f"{path}: these keys are kept but not used: "
        "lstm.peephole, char_cnn.projection, clip_grad_norm"
    ]
    assert options.to_dict() == values | {"share_embedding_softmax": False}
    assert options.for_export()["char_cnn"]["projection"] == projection


def test_exported_options_have_the_keys_that_other_readers_require():
    bare = {"dim": 10, "projection_dim": 6, "n_layers": 1}
    char_cnn = {name: value for name, value in CHAR_CNN.items() if name != "n_highway"}
    options = ModelOptions.from_dict({"lstm": bare, "char_cnn": char_cnn, "bidirectional": True})
    exported = options.for_export()
    assert exported["char_cnn"]["n_characters"] == 262
    assert exported["char_cnn"]["n_highway"] == 0
    added = {"use_skip_connections": False, "cell_clip": None, "proj_clip": None}
    assert exported["lstm"] == bare | added
    words = ModelOptions.from_dict({"lstm": LSTM, "char_cnn": None})
    assert "char_cnn" not in words.for_export() and words.for_export()["lstm"] == LSTM
