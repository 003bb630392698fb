"""How the process of a command ends: it does not wait for destructors."""

from command_runs import run_code

CODE = """
import atexit
from bilm.commands.main import command, run_script

class Destructor:
    def __del__(self):
        print("destructor", flush=True)

@command()
def work():
    "Work."
    print("result")
    return 3

kept = Destructor()
atexit.register(print, "exit function")
run_script(work)
"""


def test_command_exits_without_destructors():
    """Those of TensorFlow take seconds, in a worker of a run up to a minute."""
    done = run_code(CODE)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.splitlines() == ["result", "exit function"]
