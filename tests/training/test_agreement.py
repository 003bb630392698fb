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
from bilm.scoring.perplexity import Perplexity
from bilm.storage.checkpoint import latest_checkpoint
from bilm.training.hosts import agreement
from bilm.training.hosts.exchange import Alone
from bilm.training.run_folder import Measurement, RunFolder


class Second:
    """Worker 1 of two, to which the chief says what is written down."""

    n_workers, index, is_chief = 2, 1, False

    def __init__(self, **said):
        self.said = said

    def gather(self, what, value):
        return [self.said[what], value]

    def name(self, index):
        return f"worker {index}"


def test_workers_adopt_options_and_measurements_of_the_chief():
    options = tiny_options(n_train_tokens=7)
    found = Perplexity({"forward": 2.0, "backward": 3.0}, 2.5, 9)
    record = found._asdict()
    measured = {"step": 4, "perplexity": record, "part_mean": 2.0, "text": None}
    hosts = Second(options=options.to_dict(), measured=[measured, True], evaluation=record)

    def never():
        raise AssertionError("the chief alone does this")

    assert agreement.agreed_options(hosts, never) == options
    assert agreement.agreed_measurement(hosts, RunFolder("nowhere")) == (
        Measurement(4, found, 2.0, None),
        True,
    )
    assert agreement.agreed_perplexity(hosts, never) == found


def test_agreement_of_a_single_process(tmp_path):
    options, found = tiny_options(), Perplexity({"forward": 2.0}, 2.0, 9)
    assert agreement.agreed_options(Alone(), lambda: options) is options
    assert agreement.agreed_perplexity(Alone(), lambda: found) is found
    assert agreement.agreed_checkpoint(Alone(), RunFolder(tmp_path)) is None
    assert agreement.agreed_measurement(Alone(), RunFolder(tmp_path)) == (None, False)


def test_checkpoint_is_awaited_in_a_lagging_shared_folder(tmp_path):
    late = threading.Timer(0.5, shutil.copytree, (tiny_run("words"), tmp_path / "run"))
    late.start()
    saved = agreement.agreed_checkpoint(
        Second(checkpoint="model.ckpt-2"), RunFolder(tmp_path / "run")
    )
    late.join()
    assert saved.step == 2 and saved.path == latest_checkpoint(tmp_path / "run").path


def test_missing_checkpoint_of_a_worker_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(agreement, "LAG_SECONDS", 0)
    with pytest.raises(HostError) as error:
        agreement.agreed_checkpoint(Second(checkpoint="model.ckpt-2"), RunFolder(tmp_path))
    assert f"worker 1: {tmp_path}/model.ckpt-2" in str(error.value)
    assert "expected a folder of the run that all hosts share" in str(error.value)


def test_save_is_refused_if_text_positions_of_workers_differ():
    position = {"forward_reader": np.arange(6)}
    agreement.check_place(Alone(), 3, position)
    agreement.check_place(Second(place=zlib.crc32(np.arange(6).tobytes())), 3, position)
    with pytest.raises(HostError) as error:
        agreement.check_place(Second(place=1), 3, position)
    assert "worker 1: is at another place in the text than worker 0 after step 3" in str(
        error.value
    )


def test_start_is_refused_if_weights_of_workers_differ():
    digests = {"weights": "aa", "state": "bb", "adagrad": "cc"}

    class First(Second):
        """The chief, which hears another digest from worker 1."""

        def gather(self, what, value):
            return [value, value | self.said[what]]

    agreement.check_same_start(First(**{"start values": {}}), lambda: digests, None)
    other = {"SHA-256 of the weights before step 1": "dd"}
    with pytest.raises(HostError) as error:
        agreement.check_same_start(First(**{"start values": other}), lambda: digests, None)
    assert str(error.value) == (
        "worker 1: SHA-256 of the weights before step 1 is dd, but aa on worker 0; expected the "
        "same on all hosts"
    )
    agreement.check_same_start(Alone(), lambda: pytest.fail("needs no digest"), None)
