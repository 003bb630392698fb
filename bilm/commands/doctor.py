"""`bilm doctor`: whether this installation works, and how to repair it."""

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import show

NOTE = """
The report contains versions, cores, load, settings and GPUs. It computes the vectors of a small
model with NumPy, with each installed backend of Keras on the CPU and on each GPU, in float32 and
bfloat16, and in int8 if ONNX Runtime is installed. It compares them with those of bilm-tf. `pip
check` compares the versions with those that bilm requires.

Each computation runs in a process of its own, so that a library that crashes does not end the
report. The exit status is 1 if there are problems. Paste the report into a report of an error.
"""


@command(notes=[NOTE])
@opt.json_option
def doctor(json: bool) -> int:
    """Check this installation and explain how to repair it.

    Examples:
      bilm doctor
      bilm doctor --json > doctor.json
    """
    from dataclasses import asdict

    from bilm.doctor.examination import examine

    report = examine()
    show(asdict(report), "\n".join(report.lines()), json, indent=2)
    return 1 if report.problems else 0
