"""Writing HDF5 files on a disk that is full at any moment."""

import errno

import h5py
import numpy as np
from command_runs import run_code

from bilm.storage.hdf5 import NewHDF5, open_hdf5, save_hdf5
from bilm.storage.stored_tensors import hdf5_tensors

# h5py's own file ends the process with a segmentation fault at most of these sizes.
FULL_DISK = """
import os, resource, signal, sys
import numpy as np
from bilm.storage.hdf5 import save_hdf5

path = sys.argv[1]
values = {f"group/{i}": np.full(400, i, np.float32) for i in range(300)}
values["words"] = np.array(["word", "żółw"] * 500, object)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for limit in (1, 100, 2048, 4096, 6000, 16_000, 64_000, 300_000, 500_000, 1_000_000):
    if not (child := os.fork()):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            save_hdf5(path, values)
        except OSError as error:
            assert (error.errno, error.filename) == (27, path), error
            os._exit(1)
        os._exit(0)
    print(limit, os.waitpid(child, 0)[1] // 256, *os.listdir(os.path.dirname(path)), flush=True)
"""


def test_hdf5_write_on_a_full_disk_raises_and_leaves_no_file(tmp_path):
    path = tmp_path / "out.hdf5"
    done = run_code(FULL_DISK, path)
    assert (done.returncode, done.stderr) == (0, "")
    *full, last = [line.split()[1:] for line in done.stdout.splitlines()]
    assert full == [["1"]] * 9  # an exception, no signal, nothing left
    assert last == ["0", "out.hdf5"]


def test_save_hdf5_round_trip(tmp_path):
    values = {
        "a/b": np.arange(6, dtype=np.float32).reshape(2, 3),
        "scalar": np.float64(3),
        "empty": np.zeros((0, 4), np.int64),
        "words": np.array(["word", "żółw"], object),
        "large": np.random.default_rng(0).normal(size=1_000_000),
    }
    save_hdf5(tmp_path / "out.hdf5", values)
    with NewHDF5(tmp_path / "out.hdf5", "a") as file:
        file["more"] = [1, 2]
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert set(file) == {"a", "scalar", "empty", "words", "large", "more"}
        assert file["words"].asstr()[...].tolist() == ["word", "żółw"]
        for name in ("a/b", "scalar", "empty", "large"):
            assert file[name].dtype == values[name].dtype
            np.testing.assert_array_equal(file[name], values[name])


def test_hdf5_is_read_from_a_file_system_without_locks(tmp_path, monkeypatch):
    save_hdf5(tmp_path / "out.hdf5", {"a": np.arange(3)})
    plain = h5py.File

    def file(path, mode, locking=True):
        if locking:
            raise OSError(errno.ENOLCK, "unable to lock file")
        return plain(path, mode, locking=False)

    monkeypatch.setattr(h5py, "File", file)
    with open_hdf5(tmp_path / "out.hdf5") as opened:
        assert opened["a"][...].tolist() == [0, 1, 2]
    assert np.asarray(hdf5_tensors(tmp_path / "out.hdf5")["a"]).tolist() == [0, 1, 2]
