import logging

import pytest
from options_examples import CHAR_CNN, LSTM, RUN, dotted_names, edited, stored

from bilm.errors import OptionsError
from bilm.options import (
    LstmOptions,
    ModelOptions,
    RunOptions,
    load_model_options,
    load_run_options,
)

OPTIONAL = {
    "char_cnn",
    "char_cnn.n_highway",
    "lstm.cell_clip",
    "lstm.proj_clip",
    "lstm.use_skip_connections",
    "n_train_tokens",
    "n_tokens_vocab",
}


def test_the_options_of_an_export_serve_a_new_run():
    assert RunOptions.from_dict(RUN | {"bilm_export": "1234"}).to_dict()["bilm_export"] == "1234"


def test_reads_the_options_of_the_reference(tmp_path):
    options = load_run_options(stored(tmp_path, RUN))
    assert options.lstm == LstmOptions(10, 6, 2, 3, 3, True)
    assert options.char_cnn.filters == ((1, 4), (2, 5), (3, 6))
    assert options.char_cnn.embedding.dim == 4
    assert (options.learning_rate, options.sample_softmax) == (0.2, True)
    assert options.model == ModelOptions(options.lstm, options.char_cnn, True)
    added = {"learning_rate": 0.2, "sample_softmax": True, "share_embedding_softmax": False}
    added |= {"optimizer": "adagrad", "warmup_steps": 0, "decay": "none"}
    added |= {"decay_start": 0.0, "decay_floor": 0.0, "state_reset_probability": 0.0}
    added |= {"softmax_bias": "zeros", "share_negatives": False}
    assert options.to_dict() == RUN | added


def test_another_optimizer_has_its_own_learning_rate():
    options = RunOptions.from_dict(RUN)
    assert options.replace(optimizer="adam").learning_rate == 0.002
    assert options.replace(optimizer="adam", learning_rate=0.01).learning_rate == 0.01
    assert options.replace(optimizer="adagrad", dropout=0.5).learning_rate == 0.2
    assert RunOptions.from_dict(RUN | {"optimizer": "adam"}).learning_rate == 0.002


@pytest.mark.parametrize("name", sorted(set(dotted_names(RUN)) - OPTIONAL))
def test_a_missing_key_is_named(tmp_path, name):
    path = stored(tmp_path, edited(name, remove=True))
    with pytest.raises(OptionsError) as caught:
        load_run_options(path)
    assert str(caught.value).startswith(f"{path}: {name}: missing, expected ")


def test_defaults_of_the_optional_keys():
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
def test_a_new_run_refuses_an_unknown_key(name):
    last = name.split(".")[-1]
    with pytest.raises(OptionsError, match=f"^{name}: unknown key, expected one of .*") as caught:
        RunOptions.from_dict(edited(name, 1))
    assert last not in str(caught.value).split("one of")[1].split(", ")


@pytest.mark.parametrize("name", sorted(dotted_names(RUN)))
@pytest.mark.parametrize("wrong", ["3", [], {}, float("nan"), float("inf"), -1, 10**400])
def test_an_ill_typed_value_is_refused_by_name(tmp_path, name, wrong):
    path = stored(tmp_path, edited(name, wrong))
    with pytest.raises(OptionsError) as caught:
        load_run_options(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {name}") and "\n" not in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lstm.dim", True),
        ("lstm.dim", 10.0),
        ("lstm.dim", 0),
        ("lstm.dim", None),
        ("lstm", None),
        ("lstm.projection_dim", 11),
        ("lstm.cell_clip", 0),
        ("lstm.proj_clip", -3),
        ("lstm.proj_clip", 10**400),
        ("lstm.cell_clip", True),
        ("lstm.use_skip_connections", 1),
        ("lstm.use_skip_connections", None),
        ("bidirectional", 1),
        ("bidirectional", None),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("dropout", False),
        ("learning_rate", 0),
        ("optimizer", "sgd"),
        ("optimizer", ["adam"]),
        ("warmup_steps", -1),
        ("warmup_steps", 1.5),
        ("decay", "exponential"),
        ("decay", True),
        ("decay_start", 1.1),
        ("decay_floor", -0.1),
        ("all_clip_norm_val", None),
        ("sample_softmax", "true"),
        ("char_cnn.activation", "gelu"),
        ("char_cnn.filters", [[1, 4, 5]]),
        ("char_cnn.filters", [[1, 0]]),
        ("char_cnn.filters", [[1, True]]),
        ("char_cnn.filters", [[13, 4]]),
        ("char_cnn.max_characters_per_token", 2),
        ("char_cnn.n_characters", 262),
        ("char_cnn.n_characters", 260),
        ("char_cnn.n_highway", -1),
        ("share_embedding_softmax", True),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_name(name, value):
    with pytest.raises(OptionsError, match=f"^{name}: found .+, expected .+"):
        RunOptions.from_dict(edited(name, value))


def test_integers_do_for_floats():
    options = RunOptions.from_dict(edited("dropout", 0))
    assert options.dropout == 0 and options.to_dict()["dropout"] == 0
    assert RunOptions.from_dict(edited("all_clip_norm_val", 10)) == RunOptions.from_dict(RUN)


def test_a_new_run_is_told_why_262_is_wrong():
    with pytest.raises(OptionsError, match="found 262, expected 261 to train; the export adds"):
        RunOptions.from_dict(edited("char_cnn.n_characters", 262))


def test_a_changed_value_is_checked_too():
    options = RunOptions.from_dict(RUN)
    assert options.replace(batch_size=3).batch_size == 3
    with pytest.raises(OptionsError, match="batch_size: found 0"):
        options.replace(batch_size=0)


def test_an_unknown_name_lists_those_that_exist(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = "medium, original, original_2018, small, tiny"
    with pytest.raises(OptionsError, match=rf"^tinny: .* one of {names}$"):
        load_run_options("tinny")


def n_parameters(options):
    """Parameters without the softmax, from the shapes alone."""
    cnn, lstm = options.char_cnn, options.lstm
    n_filters = sum(number for _, number in cnn.filters)
    projection = lstm.projection_dim
    table = cnn.n_characters * cnn.embedding.dim
    convolutions = sum((width * cnn.embedding.dim + 1) * number for width, number in cnn.filters)
    highway = cnn.n_highway * 2 * (n_filters + 1) * n_filters
    encoder = table + convolutions + highway + (n_filters + 1) * projection
    layer = (2 * projection + 1) * 4 * lstm.dim + lstm.dim * projection
    return encoder + 2 * lstm.n_layers * layer


SIZES = {"tiny": None, "small": 13.6, "medium": 28.0, "original": 93.6, "original_2018": 93.6}


@pytest.mark.parametrize(("name", "millions"), SIZES.items())
def test_the_packaged_options(name, millions):
    options = load_run_options(name)
    assert (options.optimizer == "adagrad") == (name == "original_2018")
    assert RunOptions.from_dict(options.to_dict()) == options
    assert options.n_train_tokens is options.n_tokens_vocab is None
    assert millions is None or round(n_parameters(options) / 1e6, 1) == millions


def test_the_recipe_of_the_reference():
    options = load_run_options("original_2018")
    assert options.model == load_run_options("original").model
    assert (options.learning_rate, options.decay, options.warmup_steps) == (0.2, "none", 0)
    assert (options.softmax_bias, options.state_reset_probability) == ("zeros", 0.0)


def test_a_published_file_holds_only_what_shapes_the_model(tmp_path, caplog):
    values = {"lstm": LSTM, "char_cnn": CHAR_CNN | {"n_characters": 262}}
    with caplog.at_level(logging.WARNING, logger="absl"):
        options = load_model_options(stored(tmp_path, values))
    assert options.bidirectional is None
    assert options.char_cnn.n_characters == 262
    assert not caplog.records


def test_the_options_of_a_run_are_those_of_a_model(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="absl"):
        options = load_model_options(stored(tmp_path, RUN))
    assert options.replace(other={}) == RunOptions.from_dict(RUN).model
    assert options.other["batch_size"] == 128
    assert not caplog.records


def test_keys_of_a_fork_are_kept_and_named_in_one_warning(tmp_path, caplog):
    projection = {"dim": 3, "bias": None}
    values = edited("char_cnn.projection", projection) | {"clip_grad_norm": 5, "dropout": "none"}
    values["lstm"]["peephole"] = False
    path = stored(tmp_path, values)
    with caplog.at_level(logging.WARNING, logger="absl"):
        options = load_model_options(path)
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: keys kept but not used: lstm.peephole, char_cnn.projection, clip_grad_norm"
    ]
    assert options.to_dict() == values | {"share_embedding_softmax": False}
    assert options.for_export()["char_cnn"]["projection"] == projection


@pytest.mark.parametrize("name", ["lstm.dim", "char_cnn.filters", "lstm"])
def test_what_shapes_a_stored_model_is_checked(tmp_path, name):
    path = stored(tmp_path, edited(name, 0))
    with pytest.raises(OptionsError, match=f": {name}: found 0, expected"):
        load_model_options(path)


def test_an_export_says_what_readers_insist_on():
    bare = {"dim": 10, "projection_dim": 6, "n_layers": 1}
    char_cnn = {name: value for name, value in CHAR_CNN.items() if name != "n_highway"}
    options = ModelOptions.from_dict({"lstm": bare, "char_cnn": char_cnn, "bidirectional": True})
    exported = options.for_export()
    assert exported["char_cnn"]["n_characters"] == 262
    assert exported["char_cnn"]["n_highway"] == 0
    assert exported["lstm"] == bare | {
        "use_skip_connections": False,
        "cell_clip": None,
        "proj_clip": None,
    }
    words = ModelOptions.from_dict({"lstm": LSTM, "char_cnn": None})
    assert "char_cnn" not in words.for_export() and words.for_export()["lstm"] == LSTM
