"""Programs that end while a text is read ahead, in any way and at any moment: none may hang."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bilm.errors import BilmError
from bilm.training.training_text import read_ahead

SECONDS = 20  # in which a program must end
PROGRAM = """
import atexit, gc, os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

from tiny_runs import TEXT, VOCABULARY, WORDS, on_cpu, tiny_options
from tiny_runs import run as train

import bilm.data.dataset as dataset
from bilm.data.shards import resolve_shards
from bilm.data.vocabulary import Vocabulary
from bilm.errors import DataError
from bilm.training.devices import Devices
from bilm.training.step import Trainer
from bilm.training.training_text import TrainingText

def reads(text):
    shards = resolve_shards(text)
    text = TrainingText(tiny_options(**WORDS), Vocabulary(VOCABULARY), shards, 0)
    return text.batches(Devices(on_cpu()))

def consume(batches):
    for _ in batches:
        pass

def announce():
    print("ending", flush=True)
"""
MOMENTS = {
    "before the first batch": "batches = reads(TEXT)",
    "with a full queue": "batches = reads(TEXT)\nnext(batches)\ntime.sleep(0.5)",
    "filling the buffer": (
        "dataset.SHUFFLE_BUFFER = 1 << 30\n"
        "with open('long.txt', 'w') as file:\n"
        "    file.write('the cat\\n' * 1_000_000)\n"
        "batches = reads('long.txt')\n"
        "time.sleep(0.1)"
    ),
    "after an error": (
        "with open('bad.txt', 'wb') as file:\n"
        "    file.write(b'the cat\\n' * 100 + b'\\xff\\n')\n"
        "batches = reads('bad.txt')\n"
        "try:\n"
        "    consume(batches)\n"
        "except DataError as error:\n"
        "    print(error)"
    ),
    "in a run": (
        "taken = Trainer.step\n"
        "def step(trainer, batch, number):\n"
        "    if number == 3:\n"
        "        announce()\n"
        "        end()\n"
        "    return taken(trainer, batch, number)\n"
        "Trainer.step = step\n"
        "def run():\n"
        "    train('run', 5)\n"
    ),
}
# What a program does at the end, and its exit status.
ENDINGS = {
    "exception": ("raise RuntimeError('ended')", 1),
    "sys.exit": ("sys.exit(3)", 3),
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)", -signal.SIGINT),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(9)", -signal.SIGTERM),
    "dropped iterator": ("globals().pop('batches')", 0),
    "exit in a thread": (
        "def exits():\n"
        "    next(batches, None)\n"
        "    sys.exit()\n"
        "thread = threading.Thread(target=exits)\n"
        "thread.start()\n"
        "thread.join()",
        0,
    ),
    "traceback with the batches": (
        "def fails(batches):\n"
        "    raise RuntimeError(batches)\n"
        "try:\n"
        "    fails(batches)\n"
        "except RuntimeError as error:\n"
        "    sys.kept = error\n"
        "    raise",
        1,
    ),
    "thread pool": (
        "global pool\npool = ThreadPoolExecutor(2)\npool.submit(next, batches, None).result()",
        0,
    ),
    "atexit handler that reads": ("atexit.register(next, batches, None)", 0),
    "no garbage collector": (
        "gc.disable()\ncycle = [batches]\ncycle.append(cycle)\nglobals().pop('batches')",
        0,
    ),
    "end of an interactive session": ("", 0),
    "os._exit": ("os._exit(4)", 4),
}
IN_A_RUN = ("exception", "sys.exit", "os._exit")
QUICK = [("SIGTERM", "filling the buffer"), ("atexit handler that reads", "with a full queue")]
CASES = [
    pytest.param(
        ending, moment, marks=() if (ending, moment) in QUICK else pytest.mark.slow,
        id=f"{ending}, {moment}",
    )
    for ending in ENDINGS
    for moment in MOMENTS
    if moment != "in a run" or ending in IN_A_RUN
]  # fmt: skip


@pytest.mark.parametrize(("ending", "moment"), CASES)
def test_program_that_reads_ahead_ends(tmp_path, ending, moment):
    code, status = ENDINGS[ending]
    body = "".join(f"    {line}\n" for line in code.splitlines() or ["pass"])
    last = "run()" if moment == "in a run" else "announce()\nend()"
    program = "\n".join([PROGRAM, f"def end():\n{body}", MOMENTS[moment], last, ""])
    (tmp_path / "program.py").write_text(program)
    interactive = ["-i"] if ending == "end of an interactive session" else []
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), str(root / "tests" / "helpers")])
    process = subprocess.Popen(
        [sys.executable, *interactive, "program.py"], cwd=tmp_path, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line == "ending\n":
            break
    try:
        _, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == status, errors[-3000:]
    assert "Fatal Python error" not in errors
    assert "terminate called" not in errors


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("reading ahead")]


def test_thread_ends_after_its_reader_is_deleted():
    values = read_ahead(iter(range(100)), 2)
    assert next(values) == 0
    (thread,) = reading_threads()
    del values
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_thread_computes_a_bounded_number_of_values():
    used = []
    values = read_ahead(map(used.append, range(100)), 3)
    next(values)
    threading.Event().wait(0.3)
    assert len(used) == 4  # one used, and three ahead
    assert len(list(values)) == 99 and len(used) == 100


def test_error_is_raised_after_the_values_before_it():
    def fails():
        yield 1
        raise BilmError("bad line")

    values = read_ahead(fails(), 4)
    assert next(values) == 1
    with pytest.raises(BilmError, match="bad line"):
        next(values)
    assert list(values) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="requires fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads
def test_fork_raises_instead_of_waiting():
    values = read_ahead(iter(range(9)), 2)
    next(values)
    if not (child := os.fork()):
        status = 1
        try:
            next(values)
        except BilmError as error:
            status = 0 if "start reading after the fork" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert next(values) == 1
