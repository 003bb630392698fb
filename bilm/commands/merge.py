"""`bilm merge`: one output from the tasks of `bilm embed --shard`."""

from __future__ import annotations

from bilm.commands import options as opt
from bilm.commands.main import command
from bilm.commands.output import show

NOTE = """
Every task must be complete. Tasks that are missing, interrupted or still running are listed, with
the option --shard that starts them again. The sentences have the order of the corpus. The manifest,
OUTPUT.manifest.json or OUTPUT/_manifest.json, contains the digests of the inputs and of the model,
all settings, and the number of sentences of each task.
"""


@command(notes=[NOTE])
@opt.group(
    "Output",
    opt.option("--output", opt.FILE, "Output of the tasks: the file to write, or the folder of a "
               "data set, with / at its end.", required=True),
)  # fmt: skip
@opt.json_option
def merge(output: str, json: bool) -> None:
    """Merge the tasks of bilm embed --shard.

    Examples:
      bilm merge --output vectors.npz
      bilm merge --output vectors/
    """
    from bilm.cluster.array import merge_tasks

    done = merge_tasks(output)
    found = {"output": output, "tasks": done.n_tasks, "sentences": done.n_sentences}
    text = f"{output}: {done.n_sentences:,} sentences of {done.n_tasks} tasks"
    show(found, text, json)
