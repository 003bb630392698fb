"""Importing a feature whose extra is missing raises an error that names the extra."""

import importlib
import re
import sys

import pytest

import bilm


@pytest.mark.parametrize(
    ("module", "package", "expected"),
    [
        ("vectorizer", "sklearn", r"bilm\.ElmoVectorizer requires (sklearn\S*).*\[sklearn\]'"),
        ("spacy_pipe", "spacy", r"The spaCy component bilm requires (spacy\S*).*\[spacy\]'"),
    ],
)
def test_missing_extra_is_named(module, package, expected, monkeypatch):
    loaded = [name for name in sys.modules if name.split(".")[0] == package]
    for name in (*loaded, f"bilm.integrations.{module}"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)  # importing it raises ImportError
    with pytest.raises(ImportError) as error:
        importlib.import_module(f"bilm.integrations.{module}")
    assert re.fullmatch(expected, str(error.value))
    assert ", which is not installed: in a checkout of bilm, run pip install '.[" in str(
        error.value
    )


def test_public_names_that_require_an_extra_are_not_in_all():
    assert "ElmoVectorizer" not in bilm.__all__ and "ElmoVectorizer" in dir(bilm)
