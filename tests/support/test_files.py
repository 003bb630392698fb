"""Atomic outputs: concurrent writers, kills, links, modes, full disks, long names."""

import errno
import fcntl
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from command_runs import environment, output_of
from disk_faults import small_disk

from bilm.errors import DataError
from bilm.support.files import expanded, new_folder, protect, replacing, scratch, try_lock


def write(path, text="new"):
    with replacing(path) as temporary:
        temporary.write_text(text)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


WRITER = """
import os, sys
os.getpid = lambda: 1  # as in a container
from bilm.support.files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text(sys.argv[2])
    print(temporary, flush=True)
    sys.stdin.readline()
    assert temporary.read_text() == sys.argv[2]
"""


def test_leftovers_of_killed_writers_are_removed_and_files_of_running_ones_kept(tmp_path):
    path = tmp_path / "out.txt"
    command, pipe = [sys.executable, "-c", WRITER, path], subprocess.PIPE
    start = partial(subprocess.Popen, env=environment(), stdin=pipe, stdout=pipe, text=True)
    killed, living = start([*command, "killed"]), start([*command, "living"])
    assert killed.stdout.readline() and living.stdout.readline()
    killed.kill()
    killed.communicate()
    assert len(names(tmp_path)) == 2
    write(tmp_path / "another.txt")
    assert len(names(tmp_path)) == 3
    write(path)
    assert len(names(tmp_path)) == 3 and path.read_text() == "new"
    living.communicate("go on\n")
    assert living.returncode == 0
    assert path.read_text() == "living"
    assert names(tmp_path) == ["another.txt", "out.txt"]


KILLED_AT = """
import os, signal, sys
from bilm.support.files import replacing

def write(path, kill_at):
    n_seen = 0
    def hook(event, arguments):
        nonlocal n_seen
        if event.split(".")[0] in ("open", "os", "fcntl", "shutil"):
            n_seen += 1
            if n_seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    with replacing(path) as temporary:
        temporary.write_text("new")

kill_at, status = 1, 9
while status == 9:
    if not (child := os.fork()):
        write(sys.argv[1], kill_at)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    text = open(sys.argv[1]).read()
    assert text in ("old", "new"), text
    print(*os.listdir(os.path.dirname(sys.argv[1])), flush=True)
    kill_at += 1
assert status == 0 and kill_at > 10
"""


def test_replacing_survives_sigkill_at_any_system_call(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    left = [line.split() for line in output_of(KILLED_AT, path).splitlines()]
    assert max(map(len, left)) == 2  # never more than the last one's
    assert left[-1] == ["out.txt"] and path.read_text() == "new"


def test_replacing_keeps_the_mode_of_the_file(tmp_path):
    path, plain = tmp_path / "out.txt", tmp_path / "plain.txt"
    write(path)
    plain.write_text("")
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o640)
    write(path)
    assert path.stat().st_mode & 0o777 == 0o640


def test_replacing_follows_links(tmp_path):
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link.txt", tmp_path / "there" / "target.txt"
    link.symlink_to(target)
    for text in ("made", "replaced"):
        write(link, text)
        assert link.is_symlink() and target.read_text() == text
    assert names(tmp_path) == ["link.txt", "there"]
    assert names(tmp_path / "there") == ["target.txt"]
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(OSError, match="circle"):
        write(tmp_path / "circle")


def test_replacing_refuses_folders_pipes_and_devices(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(OSError, match=rf"(a folder|regular file).*{path.name}"):
            write(path)
    assert not os.path.isfile(os.devnull)


def test_output_path_that_ends_with_a_slash_is_refused(tmp_path):
    path = f"{tmp_path}/o.npz/"
    with pytest.raises(IsADirectoryError, match=r"expected a file name: '.*/o\.npz/'"):
        protect(path)
    with pytest.raises(IsADirectoryError), replacing(path):
        pass
    assert not list(tmp_path.iterdir())


def test_full_disk_error_names_the_output(tmp_path):
    path = tmp_path / "out.txt"
    write(path, "old")
    with small_disk(1000), pytest.raises(OSError) as caught:
        write(path, "x" * 2000)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(path))
    assert names(tmp_path) == ["out.txt"] and path.read_text() == "old"


def test_tilde_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write("~/out.txt")
    assert names(tmp_path) == ["out.txt"]
    assert expanded("~/x") == f"{tmp_path}/x"
    for path in ("x/~", "~no-such-user/x", "http://host/~me/x"):
        assert expanded(path) == path


def test_new_folder_is_complete_or_missing(tmp_path):
    with pytest.raises(KeyError), new_folder(tmp_path / "out") as folder:
        (folder / "data").touch()
        raise KeyError
    assert names(tmp_path) == []
    (tmp_path / "out").mkdir()
    with new_folder(tmp_path / "out") as folder:
        (folder / "data").touch()
    assert names(tmp_path) == ["out"] and names(tmp_path / "out") == ["data"]
    with pytest.raises(DataError, match="exists and is not empty"), new_folder(tmp_path / "out"):
        pass
    with pytest.raises(DataError, match="exists"), new_folder(tmp_path / "out" / "data"):
        pass


def test_file_system_without_locks(tmp_path, monkeypatch):
    """As NFS without its lock service: outputs are written, and leftovers stay."""

    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / "out.txt").write_text("old")
    with scratch(tmp_path / "out.txt"), monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        write(tmp_path / "out.txt")
        assert len(names(tmp_path)) == 2 and (tmp_path / "out.txt").read_text() == "new"
        with try_lock(tmp_path / "lock"):
            pass
