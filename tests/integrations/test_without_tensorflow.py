"""Embedding, scoring and analysis without TensorFlow, and without what Windows lacks."""

import importlib.util
from functools import partial

import numpy as np
import pytest
from command_runs import run_code

pytestmark = pytest.mark.clients

WITHOUT = "import sys; sys.modules['tensorflow'] = None  # importing it raises an error\n"
SENTENCE = ["She", "rose", "from", "her", "chair", "."]
VECTORS = f"""
import bilm, keras, sys
vectors = bilm.ElmoEmbedder("novels-en").embed_sentence({SENTENCE!r})
elmo = bilm.Elmo("novels-en")
print(keras.backend.backend(), *vectors[2, :, 0])
"""
# Without fcntl, filelock warns that its locks are weaker.
WITHOUT_POSIX = """
import os, signal, subprocess, sys, warnings
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "getloadavg", "getuid", "nice", "sched_getaffinity", "setsid", "sysconf"):
    vars(os).pop(name, None)
for name in ("SIGALRM", "SIGHUP", "SIGUSR1", "alarm", "pthread_sigmask", "setitimer"):
    vars(signal).pop(name, None)
os.fsync = lambda descriptor: os.write(descriptor, b"")  # Windows refuses files open for reading
warnings.simplefilter("ignore")
"""
ANALYSIS = f"""
import bilm, sys
from bilm.studies.usages import collect_usages
from bilm.scoring.scorer import load_scorer
for backend in ("numpy", "keras"):
    vectors = bilm.ElmoEmbedder("novels-en", backend=backend).embed_sentence({SENTENCE!r})
    (score,) = load_scorer("novels-en", backend=backend).score([{SENTENCE!r}])
    print(*vectors.shape, *score.forward.shape)
print(*collect_usages("novels-en", ["chair"], {{"now": sys.argv[1]}}).vectors(2).shape)
"""


start = partial(run_code, PYTHONWARNINGS="ignore")


def require(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")


@pytest.mark.parametrize("backend", ["", "torch", "jax"])
def test_vectors_without_tensorflow_equal_those_of_tensorflow(backend, tmp_path):
    """Without KERAS_BACKEND, PyTorch is chosen."""
    import bilm

    require(backend or "torch")
    variables = {"KERAS_BACKEND": backend} if backend else {"KERAS_HOME": str(tmp_path)}
    done = start(WITHOUT + VECTORS, **variables)
    assert done.returncode == 0, done.stderr
    name, *found = done.stdout.split()
    assert name == (backend or "torch")
    expected = bilm.ElmoEmbedder("novels-en").embed_sentence(SENTENCE)[2, :, 0]
    np.testing.assert_allclose(np.array(found, float), expected, atol=1e-5)


@pytest.mark.short
def test_embedding_scoring_and_analysis_without_posix(tmp_path):
    pytest.importorskip("pandas")
    (tmp_path / "text.txt").write_text(" ".join(SENTENCE) + "\n")
    done = start(WITHOUT_POSIX + ANALYSIS, tmp_path / "text.txt")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["3 6 256 7", "3 6 256 7", "1 256"]
