"""Completion in the shells themselves."""

import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest
from command_runs import run

if find_spec("shtab") is None:
    pytest.skip("needs the extra completion: make test-clients", allow_module_level=True)
BASH = """
eval "$({python} -m bilm --print-completion bash)"
complete -p bilm > /dev/null
COMP_WORDS=({words}) COMP_CWORD={place}
$(complete -p bilm | sed 's/.*-F \\([^ ]*\\).*/\\1/') bilm
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completions(*words):
    """What bash offers for the last of the words."""
    quoted = " ".join(f"'{word}'" for word in ("bilm", *words))
    script = BASH.format(python=sys.executable, words=quoted, place=len(words))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert not done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ex"], ["export"]),
        (["embed", "--pre"], ["--precision"]),
        (["embed", "--precision", ""], ["float32", "bfloat16"]),
        (["export", "--to", "s"], ["saved_model"]),
    ],
)
def test_bash_completes_commands_flags_and_values(words, expected):
    assert completions(*words) == expected


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_reads_its_script(tmp_path):
    done = run("bilm --print-completion", "zsh")
    (tmp_path / "_bilm").write_text(done.stdout)
    subprocess.run(["zsh", "-n", tmp_path / "_bilm"], check=True)


def test_other_shells_are_named():
    done = run("bilm --print-completion", "cmd.exe")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("bilm: error: --print-completion cmd.exe: expected")
    assert "bash, zsh" in done.stderr
