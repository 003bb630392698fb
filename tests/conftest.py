"""Shared fixtures: where the golden measurements are, and one test a case that is there."""

import functools
import gc
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from command_runs import run_here  # noqa: F401 (a fixture)
from hypothesis import HealthCheck, settings

# How long an example takes is the machine's affair.
# The same examples each time: what fails was broken by a change, not by chance.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

GOLDEN = Path(os.environ.get("BILM_GOLDEN") or Path(__file__).parent / "golden")


def golden_cases(kind: str) -> list:
    """One pytest parameter for each folder of `kind` (inference, training, checkpoint)."""
    folders = sorted(p for p in (GOLDEN / kind).iterdir() if p.is_dir())
    return [pytest.param(folder, id=folder.name) for folder in folders]


@pytest.fixture
def golden_data() -> Path:
    return GOLDEN / "data"


@pytest.fixture(autouse=True, scope="session")
def one_place_for_tiny_runs(tmp_path_factory):
    """Where the processes of pytest-xdist, too, find what one of them has trained."""
    own = tmp_path_factory.getbasetemp()
    home = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "tiny_runs"
    home.mkdir(exist_ok=True)
    os.environ["BILM_TINY_RUNS"] = str(home)


@pytest.fixture
def a_run(tmp_path) -> Path:
    """A copy of a run saved after each of its three steps and measured at its end."""
    from tiny_runs import three_steps

    return Path(shutil.copytree(three_steps(), tmp_path / "run"))


@pytest.fixture
def stored_model(tmp_path) -> Path:
    """A copy of a stored model's folder."""
    from stored_files import CASE

    return Path(shutil.copytree(CASE, tmp_path / "elmo"))


@pytest.fixture(scope="session")
def stored_embedder():
    """An embedder of the same model."""
    from stored_files import CASE

    from bilm import ElmoEmbedder

    return ElmoEmbedder(CASE)


@pytest.fixture(scope="module")
def one_embedder():
    """Whatever embeds a corpus gets one embedder of each model, with an empty cache."""
    from bilm.embedding import corpus

    made = functools.cache(corpus.ElmoEmbedder)

    def make(*arguments, **settings):
        embedder = made(*arguments, **settings)
        embedder.clear_cache()
        return embedder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "ElmoEmbedder", make)
        yield


@pytest.fixture
def log(caplog):
    """What the library says, its notes too."""
    caplog.set_level("INFO", logger="absl")
    return caplog


def pytest_configure():
    """Two logical CPU devices, which must be requested before TensorFlow starts.

    And a Ctrl-C that tests can send, to their commands too, where the tests were started deaf to it
    (`nohup`, a shell's background job).
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # What one process has compiled, the hundreds that tests start need not compile again.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    import keras

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        one = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(cpu, [one, one])


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    """A command run in this process quiets TensorFlow for its children, and Ctrl-C; undo that."""
    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.fixture(autouse=True, scope="module")
def no_garbage():
    """Traced functions stay for ever: once they are frozen, no later collection looks at them."""
    yield
    gc.collect()
    gc.freeze()
