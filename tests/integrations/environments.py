"""Run commands on one line where only some libraries are installed, and print what works:
`python tests/integrations/environments.py NumPy PyTorch JAX TensorFlow`. Other libraries are hidden
from the interpreter that runs this script. Exits with 1 if a result is not the expected one."""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LIBRARIES = {
    "NumPy": set(),
    "PyTorch": {"keras", "torch"},
    "JAX": {"keras", "jax"},
    "TensorFlow": {"keras", "tensorflow"},
}
ALL = set().union(*LIBRARIES.values())
BILM, MODEL = ["-m", "bilm"], ["--model", "novels-en", "--input", "line.txt"]
EMBED = [*BILM, "embed", *MODEL, "--output", "line.npz"]
VECTORS = 'import bilm; print(bilm.ElmoEmbedder("novels-en").embed_sentence(["She"]).shape)'
LAYER = 'import bilm; print(bilm.Elmo("novels-en").name)'
REFUSED = "which is not installed: pip install tensorflow"
# Python runs this first: `find_spec` must return None, but `sys.modules` must not have the names.
HIDE = """
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in {hidden}:
            return super().find_spec(name, path, target)

sys.meta_path = [Finder if finder is PathFinder else finder for finder in sys.meta_path]
"""
# The arguments of Python, and a part of what is printed.
COMMANDS = {
    "embed": (EMBED, "1 sentences"),
    "score": ([*BILM, "score", *MODEL], "rose"),
    "fill": ([*BILM, "fill", *MODEL], "chair"),
    "info": ([*BILM, "info", "novels-en"], "ElmoEmbedder"),
    "doctor": ([*BILM, "doctor"], "no problems found"),
    "ElmoEmbedder": (["-c", VECTORS], "(3, 1, 256)"),
}
WITH_KERAS = {
    "embed --backend keras": ([*EMBED, "--backend", "keras"], "1 sentences"),
    "embed --precision bfloat16": ([*EMBED, "--precision", "bfloat16"], "1 sentences"),
}
TRAIN = [*BILM, "train", "--input", "line.txt", "--output", "run"]


def works(environment: str, folder: Path) -> bool:
    """Print the result of each command; return whether all are as expected."""
    installed = LIBRARIES[environment]
    hidden = sorted(ALL - installed)
    (folder / "sitecustomize.py").write_text(HIDE.format(hidden=hidden))
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, "PYTHONPATH": path}
    variables.pop("KERAS_BACKEND", None)

    if installed:
        commands = COMMANDS | WITH_KERAS | {"Elmo": (["-c", LAYER], "elmo")}
    else:
        commands = COMMANDS | {name: (words, REFUSED) for name, (words, _) in WITH_KERAS.items()}
    if "tensorflow" in hidden:
        commands["train"] = TRAIN, REFUSED
    are_right = []
    for name, (words, expected) in commands.items():
        words = [sys.executable, *words]
        done = subprocess.run(words, capture_output=True, cwd=folder, env=variables, text=True)
        printed = done.stdout + done.stderr
        is_right = expected in printed and (done.returncode == 1) == (expected == REFUSED)
        result = "refused" if done.returncode else "works"
        print(f"{environment:<10}  {name:<26}  {result if is_right else printed}", flush=True)
        are_right.append(is_right)
    return all(are_right)


def works_alone(environment: str) -> bool:
    """Call `works` in a new folder."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "line.txt").write_text("She rose from her [MASK] .\n")
        return works(environment, Path(name))


if __name__ == "__main__":
    with ThreadPoolExecutor(2) as threads:
        sys.exit(not all(list(threads.map(works_alone, sys.argv[1:]))))
