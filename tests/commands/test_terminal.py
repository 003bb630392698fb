"""Closed streams, encodings, closed pipes and Ctrl-C."""

import os
import signal
import socket
import subprocess

import pytest
from command_runs import words_of
from conftest import GOLDEN

CHECKPOINT = GOLDEN / "checkpoint" / "chars"
NO_UTF8 = {
    "LC_ALL": "C",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONIOENCODING": "ascii",
}


@pytest.fixture
def build(tmp_path):
    """Return the words of a command that writes a vocabulary, without TensorFlow."""
    (tmp_path / "text").write_text("Москва ist groß .\n" * 3, encoding="utf-8")
    return [
        *map(str, words_of("bilm vocab")),
        f"--input={tmp_path}/text",
        f"--output={tmp_path}/vöcab",
    ]


def shell(command, redirections, **variables):
    """Run a command with a shell's redirections."""
    line = f'exec "$@" {redirections}'
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TF_")} | variables
    return subprocess.run(
        ["sh", "-c", line, "sh", *command], capture_output=True, env=environment, timeout=300
    )


# --- closed streams ---


def test_closed_standard_error_discards_the_log(build, tmp_path):
    done = shell(build, "2>&-")
    assert done.returncode == 0 and done.stdout.startswith(b"wrote ")
    words = (tmp_path / "vöcab").read_text(encoding="utf-8").split()
    assert words[3:] == [".", "groß", "ist", "Москва"]
    assert shell([*build, "--no_such_flag"], "2>&-").returncode == 2


def test_closed_standard_output_is_an_error(build, tmp_path):
    done = shell(build, ">&-")
    assert (done.returncode, done.stdout) == (1, b"")
    last = done.stderr.splitlines()[-1]
    assert last == b"bilm vocab: error: standard output: Bad file descriptor"
    assert (tmp_path / "vöcab").exists()
    assert shell(build, "<&- >&- 2>&-").returncode == 1


def test_closed_standard_input_is_an_error(build, tmp_path):
    build[-2] = "--input=-"
    done = shell(build, "<&-")
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1
    assert b"error: /dev/stdin: " in done.stderr
    assert not (tmp_path / "vöcab").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")
def test_full_disk_behind_standard_output_is_one_line(build):
    done = shell(build, "> /dev/full")
    last = done.stderr.splitlines()[-1]
    assert last == b"bilm vocab: error: standard output: No space left on device"
    assert done.returncode == 1


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_closed_pipe_ends_with_status_141(build, arguments):
    pipe = subprocess.PIPE
    with subprocess.Popen([*build, *arguments], stdout=pipe, stderr=pipe) as process:
        process.stdout.close()
        log = process.stderr.read()
    assert process.returncode == 128 + signal.SIGPIPE
    assert b"error" not in log and b"Traceback" not in log


# --- encodings ---


def test_output_is_utf8_without_a_locale(build, tmp_path):
    done = shell(build, "", **NO_UTF8)
    assert done.stdout.startswith(f"wrote {tmp_path}/vöcab: 4 of ".encode()), done.stderr
    assert "Москва" in (tmp_path / "vöcab").read_text(encoding="utf-8")


def test_file_name_that_is_not_utf8_is_printed_unchanged(build, tmp_path):
    build[-1] = b"--output=" + os.fsencode(tmp_path) + b"/v\xff"
    done = shell(build, "")
    assert done.returncode == 0 and done.stdout.startswith(b"wrote " + build[-1][9:] + b": ")


def test_standard_input_can_be_a_socket(build, tmp_path):
    """Node.js and inetd pass sockets, whose name /dev/stdin cannot be opened."""
    build[-2] = "--input=-"
    ours, theirs = socket.socketpair()
    with subprocess.Popen(build, stdin=theirs, stdout=subprocess.PIPE) as process:
        theirs.close()
        ours.sendall(b"a b\n")
        ours.close()
        out = process.stdout.read()
    assert process.returncode == 0 and b"of 2 tokens" in out


# --- Ctrl-C ---


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


def test_command_started_with_ignored_sigint_ignores_ctrl_c(waiting, tmp_path):
    process, text = waiting(preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    with text:
        process.send_signal(signal.SIGINT)
        text.write(b"a b\n")
    process.communicate(timeout=300)
    assert process.returncode == 0 and (tmp_path / "vöcab").exists()


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
    command = [*words_of("bilm score"), "--model", tmp_path]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TF_")}
    path = os.pathsep.join(filter(None, [str(tmp_path), environment.get("PYTHONPATH")]))
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, env=environment | {"PYTHONPATH": path}
    ) as process:
        assert process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        log = process.stderr.read()
    assert (process.returncode, log.replace(b"interrupted\n", b"")) == (130, b"")


def test_score_without_home_locale_temporary_folder_and_working_folder(tmp_path):
    """Standard error is closed too, and the working folder has been removed."""
    (tmp_path / "gone").mkdir()
    gone = 'cd "$0" && rmdir "$0" && exec "$@" 2>&-'
    command = [*words_of("bilm score"), f"--model={CHECKPOINT}"]
    command.append(f"--vocab={CHECKPOINT.parent.parent / 'data' / 'vocab.txt'}")
    done = subprocess.run(
        ["sh", "-c", gone, tmp_path / "gone", *command],
        input="w1 Москва .\n".encode(),
        capture_output=True,
        env=NO_UTF8 | {"TMPDIR": "/nowhere"},
        timeout=300,
    )
    assert done.returncode == 0
    _, scored = done.stdout.decode().splitlines()
    assert scored.endswith("w1 Москва .")
