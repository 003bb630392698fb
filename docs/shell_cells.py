"""`%%sh` of the tutorials: prints the output of a cell at once.

`conf.py` copies this file to the start-up folder of the kernels. IPython's own `%%sh` prints pieces
of 100 bytes, which the site would show as lines.
"""

import subprocess
from pathlib import Path

from IPython.core.magic import register_cell_magic


@register_cell_magic
def sh(line: str, cell: str) -> None:
    """Run a cell in a shell and print its output without the log; print the log if it fails.

    Cells run in a temporary folder. Paths in this folder are printed relative to it.
    """
    done = subprocess.run(["sh", "-c", cell], capture_output=True, text=True)
    output = done.stdout
    if done.returncode:
        output += done.stderr
    print(output.replace(f"{Path.cwd()}/", ""), end="")
    done.check_returncode()
