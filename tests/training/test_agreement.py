"""What workers take from the chief, with the other side of the conversation written down."""

import shutil
import threading
import zlib

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("training is TensorFlow's", allow_module_level=True)
from tiny_runs import tiny_options, tiny_run

from bilm.errors import HostError
from bilm.evaluation import Perplexity
from bilm.training import agreement
from bilm.training.hosts import Alone
from bilm.training.run_folder import RunFolder
from bilm.training.saved import find_saved


class Second:
    """Worker 1 of two, to which the chief says what is written down."""

    n_workers, index, is_chief = 2, 1, False

    def __init__(self, **said):
        self.said = said

    def gather(self, what, value):
        return [self.said[what], value]

    def name(self, index):
        return f"worker {index}"


def test_a_worker_takes_what_the_chief_found():
    options = tiny_options(n_train_tokens=7)
    found = Perplexity({"forward": 2.0, "backward": 3.0}, 2.5, 9)
    record = found._asdict()
    hosts = Second(options=options.to_dict(), measured=[[4, record], True], evaluation=record)

    def never():
        raise AssertionError("the chief alone does this")

    assert agreement.agreed_options(hosts, never) == options
    assert agreement.agreed_measurement(hosts, RunFolder("nowhere")) == ((4, found), True)
    assert agreement.agreed_perplexity(hosts, never) == found


def test_one_process_agrees_with_itself(tmp_path):
    options, found = tiny_options(), Perplexity({"forward": 2.0}, 2.0, 9)
    assert agreement.agreed_options(Alone(), lambda: options) is options
    assert agreement.agreed_perplexity(Alone(), lambda: found) is found
    assert agreement.agreed_checkpoint(Alone(), RunFolder(tmp_path)) is None
    assert agreement.agreed_measurement(Alone(), RunFolder(tmp_path)) == (None, False)


def test_a_worker_waits_for_a_folder_that_lags(tmp_path):
    late = threading.Timer(0.5, shutil.copytree, (tiny_run("words"), tmp_path / "run"))
    late.start()
    saved = agreement.agreed_checkpoint(
        Second(checkpoint="model.ckpt-2"), RunFolder(tmp_path / "run")
    )
    late.join()
    assert saved.step == 2 and saved.path == find_saved(tmp_path / "run").path


def test_a_folder_that_is_not_shared_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(agreement, "LAG_SECONDS", 0)
    with pytest.raises(HostError) as error:
        agreement.agreed_checkpoint(Second(checkpoint="model.ckpt-2"), RunFolder(tmp_path))
    assert f"worker 1: {tmp_path}/model.ckpt-2" in str(error.value)
    assert "expected a folder of the run that all hosts share" in str(error.value)


def test_workers_at_different_places_in_the_text_save_nothing():
    position = {"forward_reader": np.arange(6)}
    agreement.check_place(Alone(), 3, position)
    agreement.check_place(Second(place=zlib.crc32(np.arange(6).tobytes())), 3, position)
    with pytest.raises(HostError) as error:
        agreement.check_place(Second(place=1), 3, position)
    assert "worker 1: is at another place in the text than worker 0 after step 3" in str(
        error.value
    )
