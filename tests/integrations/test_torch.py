"""`Elmo` in PyTorch's own training loop, as docs/pytorch.md shows it."""

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from pages import run_blocks
from stored_files import CASE

if keras.backend.backend() != "torch":
    pytest.skip("with KERAS_BACKEND=torch: make test-clients", allow_module_level=True)
import torch

from bilm import Elmo

pytestmark = pytest.mark.clients

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the page's blocks define, run one after the other in a folder with a model `elmo`."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(CASE, folder / "elmo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        torch.manual_seed(0)
        keras.utils.set_random_seed(0)
        return run_blocks(PAGE.read_text(encoding="utf-8"), PAGE) | {"folder": folder}


def test_pytorch_page_training_loop_learns(names):
    assert isinstance(names["classifier"].elmo, torch.nn.Module)
    assert min(names["losses"][-3:]) < 0.5 * names["losses"][0]
    texts = [["a", "good", "film"], ["a", "bad", "film"], ["good"], ["bad", "."]]
    with torch.no_grad():
        predicted = names["classifier"](texts).argmax(dim=1)
    assert predicted.tolist() == names["labels"].tolist()


def test_pytorch_page_tagger_learns_and_loads_again(names, monkeypatch):
    monkeypatch.chdir(names["folder"])
    tags = names["tags"]
    with torch.no_grad():
        predicted = names["tagger"](names["sentences"]).argmax(dim=-1)
        assert (predicted == tags)[tags >= 0].all()
        again = names["Tagger"](n_tags=4).eval()
        again.load_state_dict(torch.load("tagger.pt"))
        torch.testing.assert_close(again(names["sentences"]), names["tagger"](names["sentences"]))


def test_pytorch_trains_the_mix_only(names):
    elmo, fresh = names["classifier"].elmo, Elmo(CASE)
    fresh.build()
    trained = {name for name, p in elmo.named_parameters() if p.requires_grad}
    assert len(trained) == 2 and len(list(elmo.parameters())) > 10
    for variable, other in zip(elmo.variables, fresh.variables, strict=True):
        same = np.array_equal(*(keras.ops.convert_to_numpy(v) for v in (variable, other)))
        assert same == (not variable.trainable), variable.path


def test_pytorch_trains_the_bilm_on_request(names):
    elmo = Elmo(CASE, trainable_bilm=True)
    elmo.build()
    ids = torch.as_tensor(elmo.batcher().batch_sentences(names["sentences"]))
    elmo(ids, training=True).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in elmo.parameters())
