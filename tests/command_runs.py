"""Running the commands of `bin/` in tests, in a process of their own or in this one."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(__file__).parent.parent / "bin"


def run(command, *arguments, **variables):
    """Run a command on its own."""
    return subprocess.run(
        [sys.executable, BIN / command, *arguments],
        capture_output=True,
        text=True,
        env=environment(**variables),
        timeout=300,
    )


def environment(**variables):
    """Return the environment of a command: this one without settings of TensorFlow's."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    return env | variables


@pytest.fixture
def run_here(monkeypatch, capfd):
    """Run a command in this process, which spares the seconds that TensorFlow takes to start."""
    import tensorflow as tf
    from absl import flags, logging  # not before pytest holds standard error

    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    verbosity, level = logging.get_verbosity(), tf.get_logger().level
    modules = flags.FLAGS.flags_by_module_dict().items()
    of_absl = {f.name for name, own in modules if name.startswith("absl") for f in own}
    # Of scripts that other tests have imported: a command may have flags of the same names.
    others = {name: flags.FLAGS[name] for name in flags.FLAGS}
    others = {name: flag for name, flag in others.items() if flag.name not in of_absl}
    for name in others:
        delattr(flags.FLAGS, name)
    before = set(flags.FLAGS)

    def run_here(command, *arguments):
        capfd.readouterr()  # what the fixtures have left
        monkeypatch.setattr(sys, "argv", [str(BIN / command), *map(str, arguments)])
        try:
            with pytest.raises(SystemExit) as stopped:
                runpy.run_path(str(BIN / command), run_name="__main__")
        finally:
            for name in set(flags.FLAGS) - before - {"help", "helpfull", "helpshort", "helpxml"}:
                delattr(flags.FLAGS, name)
            flags.FLAGS.unparse_flags()
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(command, stopped.value.code or 0, out, err)

    yield run_here
    for name, flag in others.items():
        flags.FLAGS[name] = flag
    logging.set_verbosity(verbosity)
    tf.get_logger().setLevel(level)


def assert_fails(done, *expected, status=1):
    """One line says what is wrong, after that with the counts if any, and nothing was printed."""
    assert done.returncode == status
    assert done.stdout == ""
    *before, last = done.stderr.splitlines()
    assert all(line.endswith((" predictions", " vocabulary")) for line in before), done.stderr
    name = Path(done.args[1] if isinstance(done.args, list) else done.args).name
    assert last.startswith(f"{name}: error: ")
    for part in expected:
        assert str(part) in last
