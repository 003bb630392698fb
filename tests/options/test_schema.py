"""Reading and writing JSON objects: damaged files, atomic writes, round trips."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from options_examples import LSTM, RUN, dotted_names, edited, stored

from bilm.errors import OptionsError
from bilm.options.model_options import ModelOptions
from bilm.options.run_options import RunOptions, load_model_options, load_run_options
from bilm.options.schema import write as write_options


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "invalid JSON: Expecting value: line 1 column 1"),
        ('{\n  "lstm": }', "line 2 column 11"),
        ("[1]", "top level: found [1], expected an object"),
        ("[" * 100_000, "invalid JSON"),
        ("1" * 10_000, "invalid JSON"),
        ('{"lstm": {"dim": 1, "n": 2, "dim": 3}}', "found the key 'dim' 2 times, expected it once"),
        ("version https://git-lfs.github.com/spec/v1", "a Git LFS pointer instead of the file"),
        ("\n<!DOCTYPE html>", "an HTML page instead of the file"),
    ],
)
@pytest.mark.parametrize("load", [load_run_options, load_model_options])
def test_invalid_options_file_is_refused_in_one_line(tmp_path, load, text, problem):
    path = stored(tmp_path, text)
    with pytest.raises(OptionsError) as caught:
        load(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)
    assert problem in str(caught.value) or text.startswith("1")  # Python 3.10.0 reads such integers


def test_write_options_is_atomic(tmp_path):
    path = tmp_path / "run" / "options.json"
    write_options(path, RUN)
    assert load_run_options(path) == RunOptions.from_dict(RUN)
    assert list(json.loads(path.read_text())) == list(RUN)
    with pytest.raises(TypeError):
        write_options(path, {"lstm": object()})
    assert [file.name for file in path.parent.iterdir()] == ["options.json"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.sampled_from(sorted(dotted_names(RUN))), JSON)
def test_any_json_value_is_accepted_or_refused_in_one_line(name, value):
    try:
        options = RunOptions.from_dict(edited(name, value))
    except OptionsError as error:
        assert "\n" not in str(error)
    else:
        assert RunOptions.from_dict(options.to_dict()) == options


@given(st.dictionaries(st.text(min_size=1), JSON, max_size=4))
def test_unknown_keys_survive_a_round_trip(other):
    known = set(RUN) | {"share_embedding_softmax"}
    other = {name: value for name, value in other.items() if name not in known}
    stored_values = {"lstm": LSTM | {"extra": other}, **other}
    written = ModelOptions.from_dict(stored_values).to_dict()
    assert written == stored_values | {"share_embedding_softmax": False}
