"""The flags of commands and examples: help without TensorFlow, and one line for wrong use."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_runs import BIN, program, words_of

import bilm
from bilm.commands import finetune, info, substitutes, train
from bilm.commands.flags import Flags, WrongUse
from bilm.commands.main import COMMANDS

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path.name for path in BIN.glob("*.py"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BILM = [f"bilm {name}" for name in COMMANDS]
PROGRAMS = [*BILM, *SCRIPTS, *EXAMPLES]
WITHOUT = "bilm cache", *(ROOT / "examples" / f"{name}.py" for name in ("demo", "polysemy"))
WITH_REQUIRED_FLAGS = [program for program in PROGRAMS if program not in WITHOUT]


def words(command):
    """Return the words that start a command, a script of `bin/` or an example."""
    return [sys.executable, command] if isinstance(command, Path) else words_of(command)


def run(command, *arguments, **options):
    return subprocess.run(
        [*words(command), *arguments], capture_output=True, text=True, timeout=300, **options
    )


def assert_wrong_use(done, *expected):
    """One line that names the command, what is wrong and where help is, and status 2."""
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    name = program(done.args)
    assert line.startswith(f"{name}: error: ") and line.endswith(f"; see {name} --help")
    for part in expected:
        assert str(part) in line


# --- help ---

WITHOUT_TENSORFLOW = """
import runpy, sys
sys.modules["tensorflow"] = sys.modules["keras"] = None  # to import them is an error
sys.argv = sys.argv[1:]
if sys.argv[0] == "-m":
    del sys.argv[0]
    runpy.run_module("bilm", run_name="__main__", alter_sys=True)
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_without_tensorflow(command, *flags):
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, *words(command)[1:], *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def shown_flags(text):
    """Return the flags that a help shows with a description, without what joins their names."""
    lines = [line[2:] for line in text.splitlines() if re.match(r"  --", line)]
    return {flag for line in lines for flag in re.findall(r"--(?:\[no_\])?(\w+)", line[:60])}


@pytest.mark.parametrize("command", PROGRAMS, ids=str)
def test_help_does_not_wait_for_tensorflow(command):
    done = run_without_tensorflow(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ") and "--flagfile" in done.stdout
    assert "(required)" in done.stdout or command in ("bilm info", *WITHOUT)
    if command in BILM:
        assert f"Examples:\n  {command} " in done.stdout
        examples = re.findall(rf"^  .*{command}((?:.*\\\n)*.*)$", done.stdout, re.MULTILINE)
        used = {flag for text in examples for flag in re.findall(r" --(\w+)", text)}
        assert used <= shown_flags(done.stdout)


def test_the_list_of_commands():
    done = run_without_tensorflow("bilm --help")
    listed = re.findall(r"^  (\w+) +[A-Z]", done.stdout, re.MULTILINE)
    assert (done.returncode, done.stderr, listed) == (0, "", list(COMMANDS))
    assert run("bilm --version").stdout == f"bilm {bilm.__version__}\n"


@pytest.mark.parametrize(
    ("word", "expected"),
    [("trian", "unknown command 'trian'; did you mean train?"), ("", "a command must be given")],
)
def test_no_command(word, expected):
    done = subprocess.run(
        [sys.executable, "-m", "bilm", *filter(None, [word])], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"bilm: error: {expected}")
    assert done.stderr.endswith("; see bilm --help\n")


def test_other_ways_to_ask():
    assert run_without_tensorflow("bilm train", "-h").stdout == run("bilm train", "--help").stdout
    done = run_without_tensorflow("train_elmo.py", "--version")
    assert (done.returncode, done.stdout) == (0, f"train_elmo.py (bilm) {bilm.__version__}\n")


def test_a_script_shows_the_old_names_and_bilm_the_new_ones():
    old, new = (shown_flags(run(c, "--help").stdout) for c in ("train_elmo.py", "bilm train"))
    assert old - new == {"train_prefix", "vocab_file", "save_dir", "heldout_prefix"}
    assert new - old == {"input", "vocab", "output", "heldout"}


# --- wrong use ---


@pytest.mark.parametrize("command", WITH_REQUIRED_FLAGS, ids=str)
def test_flags_that_must_be_given(command, run_here):
    done = run(command) if isinstance(command, Path) else run_here(command)
    assert_wrong_use(done, " must be given")


def test_all_flags_that_must_be_given_are_named():
    expected = ": --train_prefix, --save_dir must be given;"
    assert_wrong_use(run("train_elmo.py", "--vocab_file=x"), expected)
    assert_wrong_use(run("bilm train", "--output=x"), ": --input must be given;")
    assert_wrong_use(run("score.py"), ": --save_dir or --options_file must be given;")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--stepz=3"], "unknown flag --stepz; did you mean --n_steps?"),
        (["--output="], "--output=: found nothing, expected a name"),
        (["--output", "--n_steps=3"], "--output: expected a value"),
        (["--output=-x"], "./-x is a name with a dash"),
        (["--output=~no_such_user/x"], "no home folder is known for ~no_such_user"),
        (["--output"], "--output: expected a value"),
        (["--output=a", "--output=b"], "--output is given twice"),
        (["--save_dir=a", "--output=b"], "--output is given twice"),
        (["--n_steps=few"], "--n_steps=few: expected an integer from 1"),
        (["--n_steps=0"], "--n_steps=0: expected an integer from 1"),
        (["--seed=-1"], "--seed=-1: expected an integer from 0 up to 2147483647"),
        (["--checkpoint_minutes=nan"], "--checkpoint_minutes=nan: expected a number from 0"),
        (["--resume=perhaps"], "--resume=perhaps: expected one of auto, never, must"),
        (["--tf32=perhaps"], "--tf32=perhaps: expected true or false"),
        (["--flagfile=nowhere"], "nowhere"),
        (["--n_steps", "9" * 400], f"expected an integer from 1, at most {2**63 - 1}"),
        (["--join_minutes=1e9"], "--join_minutes=1e9: expected a number from 0 up to 525600"),
        (["more"], "unexpected argument 'more'; every value needs its --flag"),
    ],
)
def test_values_that_cannot_be_used(arguments, expected):
    flags = Flags("bilm train", train.__doc__)
    train.define_flags(flags)
    with pytest.raises(WrongUse, match=re.escape(expected)):
        flags.parse(arguments)


def test_a_file_of_flags_that_is_not_utf8(tmp_path):
    (tmp_path / "flags").write_bytes(b"--output=caf\xe9\n")
    flags = Flags("bilm train", train.__doc__)
    train.define_flags(flags)
    with pytest.raises(WrongUse, match=r"--flagfile=.*flags: the file of flags is not UTF-8"):
        flags.parse([f"--flagfile={tmp_path}/flags"])


def test_wrong_use_is_one_line():
    assert_wrong_use(run("bilm train", "--n_steps", "few"), "--n_steps=few: expected an integer")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--tf32=false"], {"tf32": False}),
        (["--notf32", "--sample_softmax"], {"tf32": False, "sample_softmax": True}),
        (["--no-tf32", "--n-steps", "7"], {"tf32": False, "n_steps": 7}),
        (["-n_steps", "7", "-train_prefix=*.txt"], {"n_steps": 7, "input": "*.txt"}),
        ([], {"tf32": True, "sample_softmax": None, "n_steps": None, "seed": 0}),
    ],
)
def test_spellings_of_a_flag(words, expected):
    flags = Flags("bilm finetune", finetune.__doc__)
    finetune.define_flags(flags)
    needed = ["--model=m", "--output=o"]
    needed += ["--input=i"] if not any("train_prefix" in word for word in words) else []
    args = vars(flags.parse([*needed, *words]))
    assert {name: args[name] for name in expected} == expected


def test_a_text_may_hold_dashes_and_a_number_a_sign():
    flags = Flags("bilm substitutes", substitutes.__doc__)
    substitutes.define_flags(flags)
    words = ["--model=m", "--sentence", "- a --b c", "--position", "-1"]
    args = flags.parse(words)
    assert (args.sentence, args.position) == ("- a --b c", -1)
    assert flags.parse(["--model=m", "--sentence", "", "--position=0"]).sentence == ""
    with pytest.raises(WrongUse, match=r"--sentence=.*: not UTF-8"):
        flags.parse([*words[:1], "--sentence=\udcff", "--position=0"])


def test_a_word_without_a_flag_may_come_after_one():
    flags = Flags("bilm info", info.__doc__)
    info.define_flags(flags)
    for words in (
        ["--json", "run"],
        ["run", "--json"],
        ["--model", "run", "--json"],
        ["--json", "--model=run"],
        ["-model", "run", "--json"],
    ):
        args = flags.parse(words)
        assert (args.model, args.json) == ("run", True)


def test_a_pattern_that_the_shell_has_expanded(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("a\n")
    done = run("bilm vocab", "--input", *sorted(tmp_path.iterdir()), "--output", tmp_path / "v")
    found = f"unexpected argument '{tmp_path}/b.txt' and 1 more"
    assert_wrong_use(done, f"{found}; put a pattern of files in quotes, such as '{tmp_path}/*.txt'")
    assert not (tmp_path / "v").exists()


def test_a_file_of_flags_may_be_overruled(tmp_path):
    (tmp_path / "text").write_text("a\n")
    (tmp_path / "flags").write_text(f"--train_prefix={tmp_path}/text\n--outfile={tmp_path}/no\n")
    done = run("build_vocab.py", f"--flagfile={tmp_path}/flags", f"--outfile={tmp_path}/v")
    assert (done.returncode, (tmp_path / "v").exists(), (tmp_path / "no").exists()) == (0, 1, 0)


def test_home_is_found_in_a_flag(tmp_path):
    (tmp_path / "text").write_text("a\n")
    environment = {"HOME": str(tmp_path)}
    done = run("bilm vocab", "--input=~/te*", "--output=~/v", cwd="/", env=environment)
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["wrote", f"{tmp_path}/v:"])
    assert (tmp_path / "v").exists()


# --- where the commands run ---


def test_a_system_without_file_locks_is_named():
    program = "import sys; sys.modules['fcntl'] = None\n"
    names = [f"bilm.{name}" for name in ("evaluation", "storage.checkpoint", "training.saved")]
    program += f"for name in {[*names, 'bilm.storage.checkpoint_folder']}:\n"
    program += "    sys.modules[name] = type(sys)(name)\n"  # they would import TensorFlow
    program += "    sys.modules[name].__getattr__ = lambda name: None\n"
    program += "from bilm.errors import BilmError\n"
    program += "try:\n    import bilm.training.run_folder\n"
    program += "except BilmError as error:\n    print(error)\n"
    program += "assert 'tensorflow' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("training runs on Linux and macOS")
