"""Commands of other packages: listed without importing them, run, and named if they fail."""

import re
from pathlib import Path

import command_runs
import pytest
from pages import blocks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
HELLO = '''
import click

@click.command()
def hello():
    """Greet a person. This is not in the list."""
    print("hello")
'''


def install(folder, name, entry_points):
    """Write the metadata of an installed package, with lines of entry points."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "\n".join(entry_points)
    (metadata / "entry_points.txt").write_text(f"[bilm.commands]\n{lines}\n")


def run(folder, *words):
    """Run `bilm` with the packages of a folder."""
    return command_runs.run("bilm", *words, cwd=folder, PYTHONPATH=f"{folder}:{ROOT}")


def listed(done, section):
    """Return the names and descriptions of the commands in a section of the help."""
    lines = done.stdout.partition(f"\n{section}:\n")[2].partition("\n\n")[0].splitlines()
    return dict(line.split(maxsplit=1) for line in lines)


@pytest.mark.skipif(not DOCS.is_dir(), reason="docs are not part of the package")
def test_plugin_of_the_documentation_is_listed_and_runs(tmp_path):
    page = (DOCS / "commands.md").read_text("utf-8")
    project, source = (code for _, code in blocks("toml|python", page))
    (name,) = re.findall(r'^name = "(.*)"', project, re.M)
    entry_points = re.findall(r'^(\S+ = )"(\S+:\S+)"', project, re.M)
    install(tmp_path, name, map("".join, entry_points))
    (tmp_path / "bilm_surprising.py").write_text(source)

    done = run(tmp_path, "--help")
    description = "List the sentences of a text that the model expects least."
    assert listed(done, "Other packages") == {"surprising": description}
    assert "usages" in listed(done, "Study") and "train" in listed(done, "Train")

    (tmp_path / "story.txt").write_text("She rose from her chair .\nHer rose she chair from .\n")
    done = run(tmp_path, "surprising", "--model", "novels-en", "--input", "story.txt", "--n", "1")
    assert done.returncode == 0, done.stderr
    assert "Her rose she chair from ." in done.stdout and "She rose" not in done.stdout


def test_plugin_is_not_imported_for_the_list(tmp_path):
    install(tmp_path, "greetings", ["hello = greetings.hello:hello"])
    (tmp_path / "greetings").mkdir()
    (tmp_path / "greetings" / "__init__.py").write_text("raise ImportError('imported too early')")
    (tmp_path / "greetings" / "hello.py").write_text(HELLO)
    done = run(tmp_path, "--help")
    assert listed(done, "Other packages") == {"hello": "Greet a person."}
    assert (done.returncode, done.stderr) == (0, "")

    done = run(tmp_path, "hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "bilm: error: bilm.commands: cannot load hello of greetings from greetings.hello:hello: "
        "ImportError: imported too early\n"
    )


@pytest.mark.parametrize(
    ("entry_point", "problem"),
    [
        ("hello = missing.hello:hello", "ModuleNotFoundError: No module named 'missing.hello'"),
        ("hello = damaged:hello", "SyntaxError: "),
        ("train = damaged:train", "another command has this name"),
        ("fill = damaged:fill", "another command has this name"),
    ],
)
def test_plugin_that_cannot_be_used_is_one_line_beside_the_help(entry_point, problem, tmp_path):
    install(tmp_path, "greetings", [entry_point])
    (tmp_path / "damaged.py").write_text("def hello(:")
    done = run(tmp_path, "--help")
    assert done.returncode == 0 and {"train", "test"} < listed(done, "Train").keys()
    (line,) = done.stderr.splitlines()
    name, _, place = entry_point.partition(" = ")
    expected = f"bilm: warning: bilm.commands: cannot load {name} of greetings from {place}: "
    assert line.startswith(expected + problem)
    assert listed(done, "Other packages") == {}


def test_plugin_that_is_not_a_command_is_refused(tmp_path):
    install(tmp_path, "greetings", ["hello = greetings:hello"])
    (tmp_path / "greetings.py").write_text("hello = 3")
    done = run(tmp_path, "hello")
    assert done.returncode == 1
    assert done.stderr.endswith("from greetings:hello: found 3, expected a command of click\n")


def test_metadata_without_entry_points_are_reported(tmp_path):
    """An editable installation keeps the metadata of the time at which it was installed."""
    install(tmp_path, "bilm-keras", [])
    done = run(tmp_path, "--help")
    assert done.returncode == 0 and "train" in listed(done, "Train")
    assert "metadata of bilm-keras lack the entry points bilm.commands" in done.stderr
    done = run(tmp_path, "fill", "--model", "novels-en")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "metadata of bilm-keras lack the entry points bilm.commands" in line
