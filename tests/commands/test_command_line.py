"""The flags of commands and examples: help without TensorFlow, and one line for wrong use."""

import subprocess
import sys
from pathlib import Path

import pytest

import bilm

ROOT = Path(__file__).parents[2]
COMMANDS = sorted((ROOT / "bin").glob("*.py"))
PROGRAMS = [*COMMANDS, *sorted((ROOT / "examples").glob("*.py"))]
# The demo needs no flag, score.py either of two sets that the library checks.
WITH_REQUIRED_FLAGS = [path for path in PROGRAMS if path.name not in ("demo.py", "score.py")]
BUILD, TRAIN = ROOT / "bin" / "build_vocab.py", ROOT / "bin" / "train_elmo.py"


def run(path, *arguments, **options):
    return subprocess.run(
        [sys.executable, path, *arguments], capture_output=True, text=True, timeout=300, **options
    )


def assert_wrong_use(done, *expected):
    """One line that names the command, what is wrong and where help is, and status 2."""
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    name = Path(done.args[1]).name
    assert line.startswith(f"{name}: error: ") and line.endswith(f"; see {name} --help")
    for part in expected:
        assert str(part) in line


# --- help ---

WITHOUT_TENSORFLOW = """
import runpy, sys
sys.modules["tensorflow"] = sys.modules["keras"] = None  # to import them is an error
sys.argv = [sys.argv[1], sys.argv[2]]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_without_tensorflow(path, flag):
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, path, flag]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_help_does_not_wait_for_tensorflow(path):
    done = run_without_tensorflow(path, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(path.read_text().split('"""')[1].splitlines()[0])
    assert "\nflags:\n" in done.stdout and "--helpfull" in done.stdout
    if path in COMMANDS:
        assert f"Examples:\n  {path.name} --" in done.stdout


def test_other_ways_to_ask():
    assert run_without_tensorflow(TRAIN, "-h").stdout == run(TRAIN, "--help").stdout
    done = run_without_tensorflow(TRAIN, "--version")
    assert (done.returncode, done.stdout) == (0, f"train_elmo.py (bilm) {bilm.__version__}\n")


# --- wrong use ---


@pytest.mark.parametrize("path", WITH_REQUIRED_FLAGS, ids=lambda path: path.name)
def test_flags_that_must_be_given(path):
    assert_wrong_use(run(path), " must be given")


def test_all_flags_that_must_be_given_are_named():
    assert_wrong_use(run(TRAIN, "--save_dir=x"), ": --train_prefix, --vocab_file must be given;")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--stepz=3"], "Unknown command line flag 'stepz'"),
        (["--save_dir="], "flag --save_dir=: found nothing, expected a name"),
        (["--save_dir", "--n_steps=3"], "--save_dir=--n_steps=3: found a flag, expected a name"),
        (["--save_dir", "-x"], "./-x is a name with a dash"),
        (["--save_dir=~no_such_user/x"], "no home folder is known for ~no_such_user"),
        (["--save_dir"], "Missing value for flag --save_dir"),
        (["--save_dir=a", "--save_dir=b"], "--save_dir is given twice"),
        (["--n_steps=few"], "flag --n_steps=few: "),
        (["--n_steps=0"], "flag --n_steps=0: "),
        (["--resume=perhaps"], "should be one of <auto|never|must>"),
        (["--flagfile=nowhere"], "nowhere"),
    ],
)
def test_values_that_cannot_be_used(arguments, expected):
    assert_wrong_use(run(TRAIN, *arguments), expected)


def test_a_pattern_that_the_shell_has_expanded(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("a\n")
    done = run(BUILD, "--train_prefix", *sorted(tmp_path.iterdir()), "--outfile", tmp_path / "v")
    found = f"unexpected argument '{tmp_path}/b.txt' and 1 more"
    assert_wrong_use(done, f"{found}; put a pattern of files in quotes, such as '{tmp_path}/*.txt'")
    assert not (tmp_path / "v").exists()


def test_a_file_of_flags_may_be_overruled(tmp_path):
    (tmp_path / "text").write_text("a\n")
    (tmp_path / "flags").write_text(f"--train_prefix={tmp_path}/text\n--outfile={tmp_path}/no\n")
    done = run(BUILD, f"--flagfile={tmp_path}/flags", f"--outfile={tmp_path}/v")
    assert (done.returncode, (tmp_path / "v").exists(), (tmp_path / "no").exists()) == (0, 1, 0)


def test_home_is_found_in_a_flag(tmp_path):
    (tmp_path / "text").write_text("a\n")
    environment = {"HOME": str(tmp_path)}
    done = run(BUILD, "--train_prefix=~/te*", "--outfile=~/v", cwd="/", env=environment)
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["wrote", f"{tmp_path}/v:"])
    assert (tmp_path / "v").exists()


# --- where the commands run ---


def test_an_installed_command_says_its_own_name(tmp_path):
    """Installed, a command is a copy without its ending in another folder."""
    installed = tmp_path / "train_elmo"
    installed.write_text(TRAIN.read_text())
    done = run(installed, "--version", env={"PYTHONPATH": str(ROOT)}, cwd="/")
    assert done.stdout == f"train_elmo (bilm) {bilm.__version__}\n"


def test_a_system_without_file_locks_is_named():
    program = "import sys; sys.modules['fcntl'] = None\n"
    program += (
        "for name in ('bilm.storage.checkpoint', 'bilm.evaluation', 'bilm.training.checkpoints'):\n"
    )
    program += "    sys.modules[name] = type(sys)(name)\n"  # they would import TensorFlow
    program += "    sys.modules[name].__getattr__ = lambda name: None\n"
    program += "from bilm.errors import BilmError\n"
    program += (
        "try:\n    import bilm.training.run_folder\nexcept BilmError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("training runs on Linux and macOS"), done.stderr
