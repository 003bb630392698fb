"""The description of a model's tensors, compared with files of bilm-tf and with Keras layers."""

import h5py
import pytest
from conftest import golden_cases

from bilm.language_model import BiLM
from bilm.options.run_options import load_model_options
from bilm.storage.checkpoint import ROWS
from bilm.storage.formats.rows import variables_of
from bilm.storage.hdf5 import datasets_of
from bilm.storage.stored_model import open_model
from bilm.tensors import PARTS, Kind, n_parameters, row_of, tensors_of


def shapes_in(group: h5py.Group) -> dict[str, tuple[int, ...]]:
    return {name: dataset.shape for name, dataset in datasets_of(group).items()}


@pytest.mark.parametrize("case", golden_cases("inference"))
def test_golden_weights_have_the_described_tensors(case):
    with h5py.File(case / "weights.hdf5") as file:
        stored = shapes_in(file)
    options = load_model_options(case / "options.json").replace(bidirectional=True)
    described = {spec.name: spec.shape for spec in tensors_of(options)}
    names = {name.replace("RNN/LSTMCell", "RNN/MultiRNNCell/Cell0/LSTMCell") for name in stored}
    assert described.keys() == names and sorted(described.values()) == sorted(stored.values())


@pytest.mark.parametrize("case", golden_cases("training"))
def test_golden_checkpoints_have_the_described_tensors(case):
    options = load_model_options(case / "options.json")
    with h5py.File(case / "golden.hdf5") as file:
        stored = variables_of(datasets_of(file["initial"]), ROWS, case)
        names = {name: tensor.shape for name, tensor in stored.items()}
    described = tensors_of(options, names["softmax/b"][0], has_softmax=True)
    assert {spec.name: spec.shape for spec in described}.items() <= names.items()


@pytest.mark.parametrize("kind", ["manylangs", "inference", "tfhub", "allennlp"])
@pytest.mark.parametrize("padding", [False, True])
def test_golden_models_have_variables_of_the_described_shapes(kind, padding):
    for case in golden_cases(kind):
        folder = case.values[0]
        source = next((p for p in (folder / "module", folder / "model") if p.is_dir()), folder)
        if source is folder and kind in ("tfhub", "allennlp"):
            continue  # an archive; the format is that of the other cases
        model = BiLM(open_model(source).options, padding=padding)
        model.build()
        specs = model.specs()
        for name, variable in model.stored_variables().items():
            n_rows, *others = specs[name].shape
            n_added = int(padding and specs[name].row.has_padding)
            assert tuple(variable.shape) == (n_rows + n_added, *others), name


def test_a_word_model_with_its_softmax_has_two_tables():
    options = load_model_options(golden_cases("training")[-2].values[0] / "options.json")
    assert options.reads_words
    without, full = tensors_of(options), tensors_of(options, 7, has_softmax=True)
    added = {spec.name: spec.shape for spec in full if spec not in without}
    width = options.lstm.projection_dim
    assert added == {"embedding": (7, width), "softmax/W": (7, width), "softmax/b": (7,)}
    assert n_parameters(options, 7) == n_parameters(options) + 7 * width


def test_a_shared_softmax_has_no_kernel():
    options = load_model_options(golden_cases("training")[-1].values[0] / "options.json")
    assert options.share_embedding_softmax
    names = [spec.name for spec in tensors_of(options, 7, has_softmax=True)]
    assert "softmax/b" in names
    assert "softmax/W" not in names


def test_each_name_belongs_to_one_row():
    for rows in PARTS.values():
        for row in rows:
            assert row_of(row.name.format(k=1, i=12)) is row
    with pytest.raises(KeyError):
        row_of("char_embed/Adagrad")


def test_blocks_divide_matrices():
    for rows in PARTS.values():
        for row in rows:
            assert row.kind is Kind.MATRIX or row.blocks == (1, 1)
