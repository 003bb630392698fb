"""Embedding, scoring and analysis without what Windows lacks."""

import pytest
from command_runs import output_of

pytestmark = pytest.mark.clients

SENTENCE = ["She", "rose", "from", "her", "chair", "."]
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


@pytest.mark.short
def test_embedding_scoring_and_analysis_without_posix(tmp_path):
    pytest.importorskip("pandas")
    (tmp_path / "text.txt").write_text(" ".join(SENTENCE) + "\n")
    printed = output_of(WITHOUT_POSIX + ANALYSIS, tmp_path / "text.txt", PYTHONWARNINGS="ignore")
    assert printed.splitlines() == ["3 6 256 7", "3 6 256 7", "1 256"]
