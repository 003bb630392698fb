"""Shared fixtures, the folder of golden measurements, and settings of pytest and Hypothesis."""

import gc
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from command_runs import run_here  # noqa: F401 (a fixture)
from hypothesis import HealthCheck, settings

# Without a deadline, as machines differ in speed; with the same examples in each run, so that a
# failure is caused by a change and not by chance.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

# Tests of training, commands, exports and strings in graphs, which only TensorFlow supports, and
# tests that do not depend on the backend.
TENSORFLOW_ONLY = (
    "commands/test_export.py", "commands/test_info.py", "commands/test_output.py",
    "commands/test_model_forms.py", "commands/test_train_test_export.py",
    "compat/test_bilm_tf_training.py", "compat/test_hub_interface.py", "compatibility/*.py",
    "elmo/test_elmo_in*.py", "elmo/test_elmo_weights.py", "elmo/test_layer.py", "export/*.py",
    "fuzz/test_fuzz.py", "integrations/test_without_posix.py", "layers/test_lstm.py",
    "scoring/test_load.py", "scoring/test_measurement.py", "scoring/test_scorer.py",
    "storage/test_checkpoint.py", "storage/test_format_conformance.py",
    "storage/test_runs_as_models.py", "storage/test_tfhub.py", "studies/gaps/test_filling.py",
    "studies/reading/test_minimal_pairs*.py", "studies/reading/test_surprisal*.py",
    "studies/test_studies_pages.py", "tests/test_benchmarks.py", "tests/test_examples.py",
    "tests/test_public_interface.py", "tests/test_readme.py", "training/*.py",
)  # fmt: skip

# Tests of stored numbers and of resuming.
OPTIMIZED = r"golden_(?!padding|scores)|packaged|bit_identical|earlier"

GOLDEN = Path(os.environ.get("BILM_GOLDEN") or Path(__file__).parent / "golden")


def golden_cases(kind: str) -> list:
    """Return a pytest parameter per golden folder of a kind: inference, training, checkpoint."""
    folders = sorted(p for p in (GOLDEN / kind).iterdir() if p.is_dir())
    return [pytest.param(folder, id=folder.name) for folder in folders]


def others_slow(parameters: list) -> list:
    """Mark all parameters but the first as slow."""
    others = (p._replace(marks=[*p.marks, pytest.mark.slow]) for p in parameters[1:])
    return [*parameters[:1], *others]


@pytest.fixture
def golden_data() -> Path:
    return GOLDEN / "data"


@pytest.fixture(autouse=True, scope="session")
def one_place_for_tiny_runs(tmp_path_factory):
    """Set one folder for trained runs, which all processes of pytest-xdist share."""
    own = tmp_path_factory.getbasetemp()
    home = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "tiny_runs"
    home.mkdir(exist_ok=True)
    os.environ["BILM_TINY_RUNS"] = str(home)


@pytest.fixture
def a_run(tmp_path) -> Path:
    """A copy of a run of three steps, saved after each step and evaluated at the end."""
    from tiny_runs import three_steps

    return Path(shutil.copytree(three_steps(), tmp_path / "run"))


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def stored_model(tmp_path) -> Path:
    from stored_files import CASE

    return Path(shutil.copytree(CASE, tmp_path / "elmo"))


@pytest.fixture(scope="session")
def stored_embedder():
    """An embedder of the model of `stored_model`."""
    from stored_files import CASE

    from bilm import ElmoEmbedder

    return ElmoEmbedder(CASE)


@pytest.fixture(scope="module")
def one_embedder():
    """Make functions that embed a corpus share one embedder per model, with an empty cache."""
    from bilm.embedding import corpus
    from bilm.embedding.embedder import ElmoEmbedder

    made = {}

    def make(model, *arguments, **settings):
        key = model.digest, *map(str, arguments), *settings.items()
        if key not in made:
            made[key] = ElmoEmbedder(model, *arguments, **settings)
        made[key].clear_cache()
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "ElmoEmbedder", make)
        yield


@pytest.fixture
def log(caplog):
    """The log of the library from level INFO."""
    caplog.set_level("INFO", logger="absl")
    return caplog


def pytest_configure():
    """Request two logical CPU devices before TensorFlow starts, and enable Ctrl-C.

    A shell starts background jobs (and `nohup` its command) with SIGINT ignored; tests send SIGINT
    to themselves and to commands, which inherit the setting.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Tests start hundreds of processes, which read the bytecode that the first one writes.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    import keras

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        one = tf.config.LogicalDeviceConfiguration()
        tf.config.set_logical_device_configuration(cpu, [one, one])


def pytest_ignore_collect(collection_path):
    """Skip the modules of TENSORFLOW_ONLY on other backends."""
    import keras

    other = keras.backend.backend() != "tensorflow"
    return (other and any(map(collection_path.match, TENSORFLOW_ONLY))) or None


@pytest.fixture
def keras_config():
    """Keras' functions for its global settings, which are restored after the test."""
    from keras import config

    names = "floatx", "dtype_policy", "image_data_format", "epsilon"
    before = {name: getattr(config, name)() for name in names}
    yield config
    for name, value in before.items():
        getattr(config, f"set_{name}")(value)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    """Restore the log level and the SIGINT handler, which commands run in this process change."""
    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.fixture(autouse=True)
def optimized_graphs(request):
    """Let TensorFlow optimize graphs, as in other programs, in tests of stored numbers and of
    resuming. In other tests it would take a sixth of the time."""
    tf = sys.modules.get("tensorflow")  # None with other backends
    if tf is not None:
        is_optimized = re.search(OPTIMIZED, request.node.nodeid)
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not is_optimized})


@pytest.fixture(autouse=True)
def compiled_once(monkeypatch):
    """Let equal runs share a compiled trainer, see `kept_trainers`."""
    training = sys.modules.get("bilm.training.run")
    if training is not None:
        import kept_trainers

        monkeypatch.setattr(training, "Trainer", kept_trainers.trainer)
        compiled_evaluation = kept_trainers.compiled_evaluation
        monkeypatch.setattr("bilm.scoring.running_text.compiled", compiled_evaluation)


@pytest.fixture(autouse=True, scope="module")
def no_garbage():
    """Freeze traced functions, which live until the process ends, to shorten later collections."""
    yield
    gc.collect()
    gc.freeze()
