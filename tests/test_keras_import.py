"""Importing Keras after bilm."""

from command_runs import run


def test_keras_backend_that_cannot_be_imported_names_the_variable(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat\n")
    arguments = "--model=novels-en", f"--input={text}"
    done = run("bilm score", *arguments, KERAS_BACKEND="nonsense")
    assert (done.returncode, done.stdout) == (1, "")
    message = "bilm score: error: Keras cannot import its backend nonsense ("
    assert done.stderr.splitlines()[-1].startswith(message)
