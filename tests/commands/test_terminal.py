"""Closed streams, encodings, closed pipes, Ctrl-C, and the end of the process."""

import os
import signal
import subprocess

import pytest
from command_runs import environment, run_code, words_of

NO_UTF8 = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
NO_UTF8 |= {"PYTHONIOENCODING": "ascii"}


@pytest.fixture
def build(tmp_path):
    """Return the words of a command that writes a vocabulary, without TensorFlow."""
    (tmp_path / "text").write_text("Москва ist groß .\n" * 3, encoding="utf-8")
    files = f"--input={tmp_path}/text", f"--output={tmp_path}/vöcab"
    return [*map(str, words_of("bilm vocab")), *files]


def shell(command, redirections, **variables):
    words = ["sh", "-c", f'exec "$@" {redirections}', "sh", *command]
    return subprocess.run(words, capture_output=True, env=environment(**variables), timeout=300)


def test_closed_streams_are_not_the_next_opened_file(build, tmp_path):
    assert shell(build, "<&- >&- 2>&-").returncode == 1  # its last line is lost
    words = (tmp_path / "vöcab").read_text(encoding="utf-8").split()
    assert words[3:] == [".", "groß", "ist", "Москва"]


@pytest.mark.parametrize("arguments", [[], ["--help"]])
@pytest.mark.parametrize(
    ("redirection", "error"), [("> /dev/full", b"28] No space left"), (">&-", b"9] Bad file desc")]
)
def test_full_or_closed_standard_output_is_one_line(build, arguments, redirection, error):
    if "full" in redirection and not os.path.exists("/dev/full"):
        pytest.skip("only Linux has /dev/full")
    done = shell([*build, *arguments], redirection)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1 and b"error: [Errno " + error in line


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_closed_pipe_ends_without_a_message(build, arguments):
    pipe = subprocess.PIPE
    with subprocess.Popen([*build, *arguments], stdout=pipe, stderr=pipe) as process:
        process.stdout.close()
        log = process.stderr.read()
    assert process.returncode == 1
    assert b"error" not in log and b"Traceback" not in log and b"ignored" not in log


def test_output_is_utf8_without_a_locale(build, tmp_path):
    build[-1] += "\udcff"  # a byte that is not UTF-8 is printed unchanged
    done = shell(build, "", **NO_UTF8)
    assert done.stdout.startswith(os.fsencode(f"wrote {build[-1][9:]}: 4 of ")), done.stderr


@pytest.fixture
def waiting(build, tmp_path):
    """Return a function that starts the command and returns when it waits for its text."""
    os.mkfifo(tmp_path / "pipe")
    build[-2] = f"--input={tmp_path}/pipe"
    started = []

    def start(**options):
        process = subprocess.Popen(build, stderr=subprocess.PIPE, **options)
        started.append(process)
        return process, open(tmp_path / "pipe", "wb")  # waits for the reader

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_ctrl_c_ends_with_status_130_and_removes_temporary_files(waiting, tmp_path):
    process, text = waiting()
    with text:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=300)[1] == b"interrupted\n"
    assert process.returncode == 130
    assert [path.name for path in tmp_path.iterdir() if "cab" in path.name] == []


SLOW_TENSORFLOW = """
import time
print("importing", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    raise ImportError("what NumPy makes of it")
"""


def test_ctrl_c_while_tensorflow_is_imported(tmp_path):
    (tmp_path / "tensorflow.py").write_text(SLOW_TENSORFLOW)
    command = [*words_of("bilm usages"), "--model", tmp_path, "--input", tmp_path / "a.txt"]
    command += ["--words", "bank", "--output", tmp_path / "usages.parquet"]
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    pipe, env = subprocess.PIPE, environment(PYTHONPATH=path)
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=env) as process:
        assert process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        log = process.stderr.read()
    assert (process.returncode, log) == (-signal.SIGINT, b"")


WITH_DESTRUCTOR = """
import atexit
from bilm.commands.main import command, run_script

class Destructor:
    def __del__(self):
        print("destructor", flush=True)

@command()
def work():
    "Work."
    print("result")
    return 3

kept = Destructor()
atexit.register(print, "exit function")
run_script(work)
"""


def test_command_exits_without_destructors():
    """Those of TensorFlow take seconds, in a worker of a run up to a minute."""
    done = run_code(WITH_DESTRUCTOR)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.splitlines() == ["result", "exit function"]
