"""`ElmoVectorizer` in pipelines, searches, data frames and pickles of scikit-learn."""

import pickle
import shutil
from importlib.util import find_spec

import numpy as np
import pytest
from command_runs import output_of
from stored_files import CASE

if find_spec("sklearn") is None:
    pytest.skip("needs the extra sklearn: make test-clients", allow_module_level=True)
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from bilm import ElmoVectorizer
from bilm.errors import DataError, OptionsError, WeightsError

pytestmark = [pytest.mark.clients, pytest.mark.short]

TEXTS = ["The bank closed .", "", "a", "She saw the bank"] * 3
LABELS = [0, 1, 0, 1] * 3


def words(texts):
    return [text.split() for text in texts]


@pytest.mark.parametrize("layers", ["average", "top", "all", [0, 2]])
@pytest.mark.parametrize(("normalize", "pool"), [(False, "mean"), (True, "mean"), (False, "max")])
def test_vectorizer_equals_the_embedder(stored_embedder, layers, normalize, pool):
    found = ElmoVectorizer(CASE, layers=layers, pool=pool, normalize=normalize).fit_transform(TEXTS)
    expected = stored_embedder.sentence_vectors(words(TEXTS), layers, normalize, pool)
    assert found.dtype == np.float32 and not found[1].any()
    np.testing.assert_array_equal(found, expected.reshape(len(TEXTS), -1))


def test_vectorizer_accepts_words_columns_and_a_tokenizer():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    vectorizer = ElmoVectorizer(CASE)
    expected = vectorizer.fit_transform(TEXTS)
    for texts in (words(TEXTS), np.array(TEXTS), pandas.Series(TEXTS), polars.Series(TEXTS)):
        np.testing.assert_array_equal(vectorizer.transform(texts), expected)
    by_comma = ElmoVectorizer(CASE, tokenizer=lambda text: text.split(","))
    commas = [text.replace(" ", ",") for text in TEXTS if text]
    found = by_comma.fit_transform(commas)
    np.testing.assert_array_equal(found, expected[[bool(text) for text in TEXTS]])


def test_vectorizer_accepts_no_texts():
    vectorizer = ElmoVectorizer(CASE)
    n_features = vectorizer.fit_transform(["a"]).shape[1]
    assert vectorizer.transform([]).shape == (0, n_features)
    assert vectorizer.fit([]).transform(["", " "]).shape[0] == 2


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ("one text", r"X is 'one text' \(str\), expected a list of texts"),
        (np.array([["a"], ["b"]]), r"X is a ndarray of shape \(2, 1\)"),
        (3, r"X is 3 \(int\), expected"),
        (["a", None], r"text 1 of X is None .*; expected a list of words"),
        ([["a", 1]], "text 0 of X, word 1 is 1"),
        ([b"a"], "text 0 of X is b'a'"),
        ([["a"], {"a", "b"}], r"text 1 of X is {.*a list of words"),
        ([{"a": 0, "b": 1}], r"text 0 of X is {.*a list of words"),
        ({"a", "b"}, r"X is {.*\(set\), expected a list of texts"),
        ({"a": 0}, r"X is {.*\(dict\), expected a list of texts"),
    ],
)
def test_vectorizer_refuses_other_values(texts, expected):
    with pytest.raises(DataError, match=expected):
        ElmoVectorizer(CASE).fit(texts)


def test_vectorizer_refuses_invalid_parameters(tmp_path):
    for vectorizer, expected in [
        (ElmoVectorizer(CASE, pool="sum"), "pool is 'sum', expected one of mean, max"),
        (ElmoVectorizer(CASE, layers="last"), "layers is 'last'"),
    ]:
        with pytest.raises(OptionsError, match=expected):
            vectorizer.fit(TEXTS)
    with pytest.raises(WeightsError, match="nowhere: found neither a file or folder of this"):
        ElmoVectorizer(tmp_path / "nowhere").fit(TEXTS)
    with pytest.raises(NotFittedError):
        ElmoVectorizer(CASE).transform(TEXTS)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("layers", "top", "layers is 'top', but was 'average' in fit"),
        ("layers", "all", "layers is 'all', but was 'average' in fit"),
        ("pool", "max", "pool is 'max', but was 'mean' in fit"),
        ("normalize", True, "normalize is True, but was False in fit"),
        ("tokenizer", str.split, "tokenizer is <method 'split' .*>, but was None in fit"),
    ],
)
def test_vectorizer_refuses_settings_changed_since_fit(name, value, found):
    vectorizer = ElmoVectorizer(CASE).fit(TEXTS).set_params(**{name: value})
    for texts in (TEXTS, []):
        with pytest.raises(OptionsError, match=f"{found}; call fit again"):
            vectorizer.transform(texts)
    assert len(vectorizer.fit(TEXTS).transform(TEXTS)) == len(TEXTS)


def test_vectorizer_feature_names_and_set_output():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    vectorizer = ElmoVectorizer(CASE).fit(TEXTS)
    vectors, names = vectorizer.transform(TEXTS), list(vectorizer.get_feature_names_out())
    assert names[:2] == ["elmovectorizer0", "elmovectorizer1"] and len(names) == vectors.shape[1]
    for library, kind in (("pandas", pandas.DataFrame), ("polars", polars.DataFrame)):
        frame = clone(vectorizer).set_output(transform=library).fit_transform(TEXTS)
        assert isinstance(frame, kind) and list(frame.columns) == names
        np.testing.assert_array_equal(frame.to_numpy(), vectors)


def test_vectorizer_pickle_contains_no_weights(stored_model, tmp_path):
    pipeline = make_pipeline(ElmoVectorizer(stored_model), LogisticRegression()).fit(TEXTS, LABELS)
    (tmp_path / "pipeline.pkl").write_bytes(pickled := pickle.dumps(pipeline))
    assert len(pickled) < 8_000 < (stored_model / "weights.hdf5").stat().st_size
    program = (
        "import pickle, sys; pipeline = pickle.load(open('pipeline.pkl', 'rb'));"
        f"print(pipeline.predict_proba({TEXTS!r})[:, 0].tolist())"
    )
    expected = pipeline.predict_proba(TEXTS)[:, 0]
    np.testing.assert_allclose(eval(output_of(program, cwd=tmp_path)), expected, atol=1e-6)


def test_vectorizer_refuses_a_model_changed_since_fit(stored_model):
    vectorizer = ElmoVectorizer(stored_model)
    before = vectorizer.fit_transform(TEXTS)
    pickled = pickle.dumps(vectorizer)
    options = (stored_model / "options.json").read_text()
    (stored_model / "options.json").write_text(options + "\n")
    with pytest.raises(WeightsError, match=r"elmo: the files have changed \(digest \w{12}\) since"):
        pickle.loads(pickled).transform(TEXTS)
    with pytest.raises(WeightsError, match="the files have changed"):
        vectorizer.transform(TEXTS)
    np.testing.assert_array_equal(vectorizer.fit_transform(TEXTS), before)
    shutil.rmtree(stored_model)
    with pytest.raises(WeightsError, match="neither a file or folder of this path nor"):
        vectorizer.transform(TEXTS)


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_vectorizer_grid_search_in_two_workers(backend):
    import joblib

    pipeline = make_pipeline(ElmoVectorizer(CASE), LogisticRegression())
    grid = {"elmovectorizer__pool": ["mean", "max"], "elmovectorizer__layers": ["top", "average"]}
    with joblib.parallel_backend(backend):
        search = GridSearchCV(pipeline, grid, cv=2, n_jobs=2, error_score="raise")
        search.fit(TEXTS, LABELS)
    alone = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(TEXTS, LABELS)
    for key in ("mean_test_score", "params"):
        np.testing.assert_array_equal(search.cv_results_[key], alone.cv_results_[key])
