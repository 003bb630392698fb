"""Run commands on a line of text where only some libraries are installed, and print their results.

    python tests/integrations/environments.py [NumPy] [PyTorch] [JAX] [TensorFlow]

By default all environments, of whose libraries those that it lacks are hidden. Exits with 1 if a
result is not the expected one.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

INSTALLED = {
    "NumPy": [],
    "PyTorch": ["keras", "torch"],
    "JAX": ["keras", "jax"],
    "TensorFlow": ["keras", "tensorflow"],
}
LIBRARIES = {name for names in INSTALLED.values() for name in names}
BILM, MODEL = ("-m", "bilm"), ("--model", "novels-en")
EMBED = [*BILM, "embed", *MODEL, "--input", "line.txt", "--output", "line.npz"]
VECTORS = """
import bilm
print(bilm.ElmoEmbedder("novels-en").embed_sentence(["She", "rose", "."]).shape)
"""
# The arguments of Python, and a part of what is printed.
COMMANDS = {
    "bilm embed": (EMBED, "1 sentences"),
    "bilm score": ([*BILM, "score", *MODEL, "--input", "line.txt"], "-19.2179"),
    "bilm fill": ([*BILM, "fill", *MODEL, "--input", "gap.txt"], "rose"),
    "bilm info": ([*BILM, "info", "novels-en"], "ElmoEmbedder"),
    "bilm doctor": ([*BILM, "doctor"], "no problems found"),
    "bilm.ElmoEmbedder": (["-c", VECTORS], "(3, 3, 256)"),
}
WITH_KERAS = {
    "bilm embed --backend keras": ([*EMBED, "--backend", "keras"], "1 sentences"),
    "bilm embed --precision bfloat16": ([*EMBED, "--precision", "bfloat16"], "1 sentences"),
}
TRAIN = [*BILM, "train", "--input", "line.txt", "--output", "run", "--options", "tiny"]
REFUSED = "which is not installed: pip install tensorflow"


def failures(environment: str, folder: Path) -> int:
    """Print the result of each command in an environment; return how many are not expected."""
    installed = INSTALLED[environment]
    hidden = sorted(LIBRARIES.difference(installed))
    hide = f"import sys; sys.modules.update(dict.fromkeys({hidden}))\n"
    (folder / "sitecustomize.py").write_text(hide)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    variables = {**os.environ, "PYTHONPATH": path}
    variables.pop("KERAS_BACKEND", None)

    commands = COMMANDS | WITH_KERAS
    if not installed:
        commands |= {name: (words, REFUSED) for name, (words, _) in WITH_KERAS.items()}
    if "tensorflow" in hidden:
        commands["bilm train"] = TRAIN, REFUSED
    n_failures = 0
    for name, (words, expected) in commands.items():
        words = [sys.executable, *words]
        done = subprocess.run(words, capture_output=True, cwd=folder, env=variables, text=True)
        printed = done.stdout + done.stderr
        is_right = expected in printed and (done.returncode == 1) == (expected == REFUSED)
        result = "fails" if done.returncode else "works"
        print(f"{environment:<10}  {name:<31}  {result if is_right else printed}", flush=True)
        n_failures += not is_right
    return n_failures


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "line.txt").write_text("She rose from her chair .\n")
        (folder / "gap.txt").write_text("She [MASK] from her chair .\n")
        sys.exit(any([failures(name, folder) for name in sys.argv[1:] or INSTALLED]))
