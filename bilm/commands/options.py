"""Types of option values, and the options that several commands share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
import cloup

from bilm.commands.output import TABLES
from bilm.data.readers import FORMS, OPTIONS
from bilm.data.readers.tables import QUOTING
from bilm.data.text import ENDINGS, ON_BAD_UTF8, STANDARD_INPUT, problem_of_pipe
from bilm.options.run_options import DECAYS, LEARNING_RATES, MAX_SEED
from bilm.precisions import INFERENCE_PRECISIONS, PRECISIONS
from bilm.storage.formats import HELP
from bilm.support.urls import is_url, masked
from bilm.training.settings import RESUME, RunSettings

if TYPE_CHECKING:
    from bilm.training.run import TrainResult

Decorator = Callable[[Any], Any]


class File(click.Path):
    """The name of a file or folder, or a pattern; a leading `~` is the home folder. `urls`: whether
    it may be a URL, which is downloaded before the command starts if `fetched`; `endings`: accepted
    endings, in lower case, empty for all."""

    def __init__(self, urls: bool = True, fetched: bool = False, endings: Sequence[str] = ()):
        super().__init__()
        self.urls, self.fetched, self.endings = urls, fetched, endings

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value or value.startswith("-"):
            self.fail(f"found {value!r}, expected a file name", param, ctx)
        if is_url(value) and not self.urls:
            self.fail(f"{masked(value)!r} is a URL; expected a local path", param, ctx)
        if self.endings and not value.lower().endswith(tuple(self.endings)):
            self.fail(f"{value!r}: expected the ending {' or '.join(self.endings)}", param, ctx)
        return os.path.expanduser(value)


class TextInput(File):
    """A file, URL or pattern of text, where `-` is standard input; not a pipe if it `rereads`."""

    def __init__(self, rereads: bool = False):
        super().__init__()
        self.rereads = rereads

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        path = STANDARD_INPUT if value == "-" else super().convert(value, param, ctx)
        if self.rereads and (problem := problem_of_pipe(path)):
            self.fail(problem, param, ctx)
        return path


class List(click.ParamType):
    """Distinct values separated by commas; `n` is their number, None for any."""

    name = "list"

    def __init__(self, item: click.ParamType, n: int | None = None):
        self.item, self.n = item, n

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        items = tuple(self.item.convert(text.strip(), param, ctx) for text in value.split(","))
        if len(set(items)) < len(items) or self.n not in (None, len(items)):
            self.fail(f"{value!r}: expected {self.n or 'only'} distinct values", param, ctx)
        return items


class Number(click.FloatRange):
    """A finite number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):  # no range excludes NaN
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


FILE, FILE_OR_URL, FETCHED = File(urls=False), File(), File(fetched=True)
TEXT, Integer, OneOf = click.STRING, click.IntRange, click.Choice
NUMBERS = List(Integer(0))

group = cloup.option_group


def option(
    name: str, type: Any, help: str, unset: str | None = None, dest: str | None = None, **more: Any
) -> Decorator:
    """Declare an option with a value, whose help describes a default that is not a constant as
    `unset`; `dest`: the name of the function's argument, None for the option's name."""
    if isinstance(type, Integer | Number):
        more.setdefault("metavar", "X" if isinstance(type, Number) else "N")
    if unset is not None:
        more["show_default"] = unset
    names = [name] if dest is None else [name, dest]
    return cloup.option(*names, type=type, help=help, **more)


def flag(name: str, help: str, **more: Any) -> Decorator:
    return cloup.option(name, is_flag=True, help=help, **more)


def reading_option(name: str, type: Any, **more: Any) -> Decorator:
    return option(f"--{name}", type, OPTIONS[name], **more)


OTHER_FORMATS = ("\n" + " " * 20).join(HELP)
MODEL_FORMS = f"""
MODEL is one of the following; existing files and folders take precedence over names:
  a folder          of a run of bilm or of the TensorFlow 1 reference, or of an exported model
  an archive        ZIP, tar or tar.gz with such a folder, or the URL of one
  an object store   the URL of such a folder or archive, s3://BUCKET/NAME, with the extra remote
  another format    {OTHER_FORMATS}
  an options file   options.json with --weights
  a name            novels-en, a small model of English novels that is part of bilm; small,
                    medium, original, original_5.5b, seqvec, nlpl:NUMBER and
                    hf:OWNER/NAME[@REVISION] are downloaded
"""
SOFTMAX_NOTE = """
The command requires a model with its softmax. An exported model has one if it was written by
"bilm export --include_softmax".
"""

weights_option = option(
    "--weights", FILE_OR_URL, "HDF5 weights; required if MODEL is an options file."
)


def model_options(
    *more: Decorator, help: str = "Stored model to use.", required: bool = True
) -> Decorator:
    """Declare --model, --weights, --vocab and the given options."""
    return group(
        "Model",
        option("--model", FILE_OR_URL, help, metavar="MODEL", required=required),
        weights_option,
        option("--vocab", FETCHED, "Vocabulary of the model, one word per line.",
               "vocab.txt in the model's folder"),
        *more,
    )  # fmt: skip


INPUT_FORMS = (
    "The ending of --input selects the input form; files may be compressed "
    f"({' '.join(ENDINGS)}) and be URLs:"
)
for form in FORMS:
    INPUT_FORMS += f"\n  {' '.join(form.endings) or 'other'}\n      {form.help}"

bad_utf8_option = option(
    "--on_bad_utf8", OneOf(ON_BAD_UTF8), "What to do with bytes that are not UTF-8: end with an "
    "error, or replace them with U+FFFD.", default="error",
)  # fmt: skip
precision_option = option(
    "--precision", OneOf(INFERENCE_PRECISIONS), "dtype of matrix-multiplication inputs. "
    "bfloat16 is faster and changes vectors by about 0.5 %; int8 is fastest "
    "and changes them by about 2 %. int8 requires the extra onnx.", default="float32",
)  # fmt: skip
dtype_option = option(
    "--dtype", OneOf(["float32", "float16"]), "dtype of the stored vectors.", default="float32"
)
tokenize_option = reading_option("tokenize", TEXT, unset="split at whitespace", metavar="LANG")
id_column_option = reading_option("id_column", TEXT, metavar="NAME")
quoting_option = reading_option(
    "quoting", OneOf(QUOTING), unset="csv; an error if a field may be rows"
)
reading_options = (
    reading_option("column", TEXT, metavar="NAME"),
    quoting_option,
    bad_utf8_option,
    tokenize_option,
)
table_option = option(
    "--output", File(endings=tuple(TABLES)), "Table to write: .csv, .tsv or .parquet."
)
json_flag = flag("--json", "Print one JSON object.")
json_option = group("Results", json_flag)


def text_input(help: str, rereads: bool = False, **more: Any) -> Decorator:
    """Declare --input; `rereads`: whether the command reads the text more than once."""
    more = {"metavar": "PATTERN", "required": True, "dest": "input_", **more}
    help += " The name - means standard input"
    help += ", which must be a redirected file, not a pipe." if rereads else "."
    return option("--input", TextInput(rereads), help, **more)


DEFAULTS = RunSettings()


def run_options(
    source: str, n_epochs: str, warmup: str, usual: Sequence[Decorator], more: Sequence[Decorator]
) -> Decorator:
    """Declare the options of commands that train, with `usual` and `more` ones; the help states the
    `source` of the defaults and two of them."""
    stored = f"from {source}, or "
    rates = ", ".join(f"{value} for {name}" for name, value in LEARNING_RATES.items())
    groups = [
        group(
            "Usual",
            text_input("Training text: a file or a quoted pattern.", True, dest="text"),
            option("--output", FILE, "Folder of the run.", dest="folder", metavar="FOLDER",
                   required=True),
            option("--heldout", TextInput(True), "Held-out text to evaluate on.",
                   metavar="PATTERN"),
            *usual,
            option("--n_epochs", Integer(1), "Passes over the text.", n_epochs),
            option("--gpus", NUMBERS, "Indices of the GPUs to use, from 0.", "all", metavar="N,N"),
            option("--precision", OneOf(PRECISIONS), "dtype of the matrix-multiplication inputs; "
                   "weights, states, sums and the loss are float32.",
                   "float32, or chosen by --options auto"),
            option("--resume", OneOf(RESUME), "What to do with a run in the folder. auto: resume "
                   "it, or start a new run. never: refuse it. must: refuse a folder without a run.",
                   default=DEFAULTS.resume),
        ),
        group(
            "Advanced (training)",
            option("--n_steps", Integer(1), "Number of steps of the run; overrides --n_epochs."),
            option("--batch_size", Integer(1), "Rows per replica.", f"from {source}"),
            *more,
            option("--seed", Integer(0, MAX_SEED), "Random seed of the initial weights, the order "
                   "of sentences, dropout and negative samples.", default=DEFAULTS.seed),
            bad_utf8_option,
        ),
        group(
            "Advanced (evaluation and reports)",
            option("--eval_steps", Integer(1), "Steps between evaluations.", "one epoch, or more"),
            option("--log_steps", Integer(1), "Number of steps between log lines.",
                   "a fifth of the run, or 10 minutes"),
        ),
        group(
            "Advanced (optimizer)",
            option("--optimizer", OneOf(LEARNING_RATES), "Optimizer.", f"{stored}adagrad"),
            option("--learning_rate", Number(0), "Learning rate after the warm-up.",
                   f"{stored}{rates}"),
            option("--warmup_steps", Integer(0), "Number of steps over which the rate rises "
                   "linearly from 0.", warmup),
            option("--decay", OneOf(DECAYS), "Decay of the learning rate.", f"{stored}none"),
            option("--decay_start", Number(0, 1), "Fraction of the run after which the decay "
                   "starts.", f"{stored}0"),
            option("--decay_floor", Number(0, 1), "Final learning rate, as a fraction of "
                   "--learning_rate.", f"{stored}0"),
        ),
        group(
            "Advanced (checkpoints)",
            option("--checkpoint_steps", Integer(1), "Steps between checkpoints.",
                   default=DEFAULTS.checkpoint_steps),
            option("--checkpoint_minutes", Number(0), "Maximum number of minutes between "
                   "checkpoints.", default=DEFAULTS.checkpoint_minutes),
            option("--keep_checkpoints", Integer(1), "Number of recent checkpoints to keep, in "
                   "addition to the best one.", default=DEFAULTS.keep_checkpoints),
        ),
        group(
            "Advanced (devices)",
            option("--n_gpus", Integer(0), "Number of GPUs to use; 0 for the CPU.", "all"),
            option("--cpu_replicas", Integer(1), "Number of logical CPU devices if no GPU is used, "
                   "for tests.", default=1),
            flag("--ignore_memory", "Train even if the memory estimate is far too large."),
        ),
        group(
            "Advanced (several hosts: docs/clusters.md)",
            option("--workers", TEXT, "Addresses of all worker processes, the chief first.",
                   "from TF_CONFIG, or no other workers", metavar="HOST:PORT,..."),
            option("--worker_index", Integer(0), "Index of this process in --workers, starting at "
                   "0."),
            option("--join_minutes", Number(0, 365 * 24 * 60), "Maximum number of minutes to wait "
                   "for the other workers.", default=10.0),
        ),
    ]  # fmt: skip

    def decorate(function: Callable) -> Callable:
        for declare in reversed(groups):
            function = declare(function)
        return function

    return decorate


def run_training(
    train: Callable[..., TrainResult], values: dict[str, Any]
) -> tuple[TrainResult, bool]:
    """Call `bilm.train` or `finetune` with values of `run_options` when all workers have joined.
    Return its result, and whether this process is the chief, which alone logs notes."""
    from absl import logging

    from bilm.training.devices import Devices, make_strategy
    from bilm.training.hosts import Hosts, find_cluster
    from bilm.training.request import DEVICE_ARGUMENTS

    workers = values.pop("workers")
    cluster = find_cluster(workers and workers.split(","), values.pop("worker_index"))
    with Hosts(cluster, values.pop("join_minutes")) as hosts:
        if not hosts.is_chief:
            logging.info("joined; the chief, %s, writes the run's files and its log", hosts.name(0))
            logging.set_verbosity(logging.WARNING)
        of_devices = {name: values.pop(name) for name in DEVICE_ARGUMENTS}
        devices = Devices(make_strategy(**of_devices, hosts=hosts), hosts)
        arguments = {name: value for name, value in values.items() if value is not None}
        return train(**arguments, devices=devices), hosts.is_chief
