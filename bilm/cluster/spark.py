"""Spark: `embed` for data frames, and `embed_corpus` for `bilm embed --engine spark`.

Spark's Python workers call `embed_batches` through `mapInArrow`. Each worker process opens the
model once and computes on the cores of one Spark task (`spark.task.cpus`). Spark has no lists of
fixed size and no 16-bit numbers: vectors are `array<float>`.

The model must exist on each host by the same name or path, or be sent to the workers
(`ship_model`). A worker compares the digest of its model with that of the driver.
"""

from __future__ import annotations

import os
import re
import sys
import tarfile
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.cluster.batches import output_schema
from bilm.cluster.plan import MANIFEST, write_json
from bilm.cluster.spark_worker import ReadAndEmbed, Reading, Work, with_list
from bilm.data.shares import counter, divide, input_files, open_corpus, sizes_of
from bilm.embedding.corpus import Settings
from bilm.embedding.embedder import Layers
from bilm.errors import BilmError, DataError, OptionsError, WeightsError
from bilm.storage.finding.download import local_copy
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import expanded, scratch, version_of
from bilm.support.imports import optional
from bilm.support.process import is_loud
from bilm.support.progress import progress
from bilm.support.urls import is_url, require_local

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

EXTRA = "spark"
MASTER = "local[*,4]"  # all cores of this machine; a task that fails is run up to four times
PARTS_PER_CORE = 4
PART_BYTES = 1 << 26  # of input; larger corpora have more parts
ERROR = re.compile(r"^(?:bilm\.errors\.|bilm\.[\w.]+\.)(\w+Error): (.*)$", re.MULTILINE)
_sent: dict[tuple[str, str], tempfile.TemporaryDirectory] = {}  # by application and name
FULL = "No space left on device"
LOG_PERIOD = 2  # seconds between two looks at Spark's progress


def embed(
    df: DataFrame,
    model: str | Path,
    column: str,
    layers: Layers = "average",
    pool: str = "mean",
    *,
    keep: Sequence[str] | None = None,
    normalize: bool = False,
    tokenize: str | None = None,
    weights: str | Path | None = None,
    vocab: str | Path | None = None,
    precision: str = "float32",
    ship_model: bool = False,
) -> DataFrame:
    """Return a data frame with the vectors of a column; nothing is computed until it is used.

    Args:
        df: a data frame.
        model, column, layers, pool, keep, normalize, tokenize, weights, vocab, precision: see
            `bilm.cluster.embed_batches`.
        ship_model: send the files of the model to the workers.
    Returns: the columns `keep`, and those of `embed_batches`, with vectors as `array<float>`.
    Raises: OptionsError, WeightsError, DataError as `embed_batches` does. Errors in a worker are
        raised by Spark when the data frame is used.

    Example:
        df = spark.read.parquet("reviews/")
        vectors = bilm.cluster.spark.embed(df, "novels-en", "text", pool="mean")
        vectors.write.parquet("vectors/")
    """
    for name in df.columns:
        if "." in name or "`" in name:
            raise OptionsError(
                f"Spark cannot pass the column {name!r}, whose name contains . or `, to Python; "
                "rename it with withColumnRenamed, or remove it with select"
            )
    stored = open_model(model, weights)
    work = Work(
        model=str(model),
        weights=None if weights is None else str(weights),
        vocab=None if vocab is None else str(vocab),
        digest=stored.digest,
        column=column,
        layers=layers if isinstance(layers, str) else tuple(map(int, layers)),
        pool=pool,
        keep=None if keep is None else tuple(keep),
        normalize=normalize,
        tokenize=tokenize,
        precision=precision,
        n_cores=_cores(df.sparkSession),
    )
    if ship_model:
        work = replace(work, shipped=_ship(df.sparkSession, stored), weights=None)
    pyarrow = optional("pyarrow", EXTRA, "Spark")
    names = pyarrow.schema([(name, pyarrow.null()) for name in df.columns])
    found = output_schema(names, stored, column, layers, pool, keep=keep)
    schema = _spark_schema(found)
    for place, field in enumerate(found):
        if pyarrow.types.is_null(field.type):  # a column of the data frame
            schema.fields[place] = df.schema[field.name]
    return df.mapInArrow(work, schema)


def _spark_schema(schema: pyarrow.Schema) -> Any:
    """Return Spark's schema of Arrow batches, after `Work`."""
    pyarrow = optional("pyarrow", EXTRA, "Spark")
    types = optional("pyspark.sql.pandas.types", EXTRA, "Spark")
    fields = [(field.name, with_list(pyarrow, field.type)) for field in schema]
    return types.from_arrow_schema(pyarrow.schema(fields))


def _cores(spark: SparkSession) -> int:
    """Return the number of cores of a task."""
    return int(spark.sparkContext.getConf().get("spark.task.cpus", "1") or 1)


# --- sending the model ---


def _ship(spark: SparkSession, model: StoredModel) -> str:
    """Send an archive of the files of a model to all workers, and return its name."""
    name = f"bilm-{model.digest[:16]}.tar"
    application = spark.sparkContext.applicationId
    if (application, name) in _sent:
        return name
    # Workers fetch the file from here when they need it, so it remains until this process ends.
    temporary = tempfile.TemporaryDirectory(prefix="bilm-")
    path = Path(temporary.name, name)
    # `own_files` also lists files that a model may have.
    files, folder = [file for file in model.own_files if file.is_file()], model.folder
    with tarfile.open(path, "w") as archive:
        for file in files:
            inside = file.relative_to(folder) if file.is_relative_to(folder) else file.name
            archive.add(file.resolve(), Path("model", inside))
    spark.sparkContext.addFile(str(path))
    _sent[application, name] = temporary
    return name


# --- a corpus ---


def embed_corpus(
    vocab_file: str | Path | None,
    dataset_file: str | Path,
    options_file: str | Path,
    weight_file: str | Path | None,
    outfile: str | Path,
    reading: Mapping[str, Any] | None = None,
    master: str | None = None,
    n_partitions: int | None = None,
    ship_model: bool = False,
    **settings: Any,
) -> int:
    """Embed a corpus with Spark into a folder of Parquet files.

    The corpus is divided into parts (`bilm.data.shares`); each part becomes one file, so that the
    files in the order of their names have the order of the corpus. Workers must be able to read the
    corpus and to write the folder. A failed part is computed again by Spark; after a failed job,
    no output exists.

    Args:
        vocab_file, dataset_file, options_file, weight_file: see `dump_bilm_embeddings`.
        outfile: folder to write, with a slash at its end.
        reading: arguments of `bilm.data.readers.Corpus`.
        master: address of the master; None for that of Spark's settings, or `MASTER`.
        n_partitions: number of parts; None for `PARTS_PER_CORE` per core, or one for each
            `PART_BYTES` of the corpus if that is more.
        ship_model: send the files of the model to the workers.
        settings: arguments of `bilm.embedding.corpus.Settings`, except `part_sentences`.
    Returns: the number of sentences.
    Raises: DataError if the output exists, or if an input has an error or changes; OptionsError;
        WeightsError if a worker does not find the model; BilmError if Spark fails.
    """
    chosen = Settings(**settings)
    if chosen.dtype != "float32":
        raise OptionsError("--dtype float16 cannot be used with Spark, whose numbers have 32 bits")
    given = {name: value for name, value in (reading or {}).items() if value is not None}
    target = _new_folder(outfile)
    vocab_file = None if vocab_file is None else expanded(local_copy(vocab_file))
    paths = [path if is_url(path) else os.path.abspath(path) for path in input_files(dataset_file)]
    has_ids = open_corpus(dataset_file, **given).has_ids
    model = open_model(options_file, weight_file)
    before = _versions(paths)
    with _session(master) as spark, scratch(target) as folder:
        n = n_partitions or _n_partitions(spark, sum(sizes_of(paths)))
        shares = tuple(map(tuple, divide(paths, n, counter(**given))))
        work = Work(
            model=_for_workers(options_file),
            weights=None if weight_file is None else _for_workers(weight_file),
            vocab=None if vocab_file is None else os.path.abspath(vocab_file),
            digest=model.digest,
            column="words",
            layers=chosen.layers,
            pool=chosen.pool,
            keep=("id",) if has_ids else (),
            normalize=chosen.normalize,
            tokenize=None,
            precision=chosen.precision,
            n_cores=_cores(spark),
            shipped=_ship(spark, model) if ship_model else None,
        )
        if ship_model:
            work = replace(work, weights=None)
        read = Reading(shares, tuple(given.items()), has_ids)
        schema = output_schema(
            read.schema, model, "words", chosen.layers, chosen.pool, keep=work.keep
        )
        numbers = spark.range(0, n, 1, n)
        frame = numbers.mapInArrow(ReadAndEmbed(read, work), _spark_schema(schema))
        new = folder / "data"
        with _progress_of(spark, n):
            frame.write.parquet(new.as_uri(), compression="none")
        n_sentences = _check(spark, new, has_ids)
        if _versions(paths) != before:
            raise DataError(f"{dataset_file}: changed while it was read; repeat the command")
        run = {"inputs": paths, **given, **chosen.identity(model, vocab_file), "partitions": n}
        write_json(new / MANIFEST, {"sentences": n_sentences, "plan": run})
        os.rename(new, target)
    return n_sentences


def _new_folder(outfile: str | Path) -> Path:
    """Return the folder to write. Raises: DataError if it contains files or is a file name."""
    require_local(outfile, "the output of --engine spark")
    if not os.fspath(outfile).endswith(("/", os.sep)):
        raise DataError(
            f"{outfile}: Spark writes a folder with several files; add a slash to the name"
        )
    target = Path(os.path.realpath(expanded(outfile)))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{outfile}: exists; remove it, or choose another folder")
    return target


def _for_workers(path: str | Path) -> str:
    """Return an absolute path for an existing file; names of models and URLs are unchanged."""
    local = expanded(path)
    return os.path.abspath(local) if os.path.exists(local) else str(path)


def _versions(paths: Sequence[str]) -> list[tuple[int, ...]]:
    return [version_of(path) for path in paths if not is_url(path)]


def _n_partitions(spark: SparkSession, n_bytes: int) -> int:
    n_cores = spark.sparkContext.defaultParallelism // _cores(spark)
    return max(PARTS_PER_CORE * max(n_cores, 1), -(-n_bytes // PART_BYTES))


def _check(spark: SparkSession, folder: Path, has_ids: bool) -> int:
    """Return the number of sentences. Raises: DataError if two have the same id."""
    written = spark.read.parquet(folder.as_uri())
    if has_ids:
        twice = written.groupBy("id").count().where("count > 1").head(1)
        if twice:
            raise DataError(
                f"{twice[0]['count']} sentences have the id {twice[0]['id']!r}; ids must be unique"
            )
    return written.count()


# --- the session ---


@contextmanager
def _session(master: str | None) -> Iterator[SparkSession]:
    """Yield a session; raise the errors of its jobs as one line. Sessions started here are stopped.

    Raises: MissingExtraError without Spark; BilmError for an error of Spark.
    """
    sql = optional("pyspark.sql", EXTRA, "--engine spark")
    errors = optional("pyspark.errors", EXTRA, "--engine spark")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    before = sql.SparkSession.getActiveSession()
    # Spark warns of each pandas version that it was not tested with; no data passes through pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    try:
        spark = before or _started(sql, master)
    except Exception as error:  # py4j and Java raise errors of many classes
        raise BilmError(f"Spark does not start: {_short(error)}; it requires Java 17") from error
    try:
        yield spark
    except (errors.PySparkException, _java_error()) as error:
        raise _translated(error) from error
    finally:
        if before is None:
            spark.stop()


def _started(sql: Any, master: str | None) -> SparkSession:
    """Return a new session, with the log of errors only unless TF_CPP_MIN_LOG_LEVEL shows more."""
    from pyspark import SparkConf

    builder = sql.SparkSession.builder.appName("bilm embed")
    if master or not SparkConf().get("spark.master", ""):
        builder = builder.master(master or MASTER)
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    if not is_loud():
        spark.sparkContext.setLogLevel("OFF")
    return spark


def _java_error() -> type[Exception]:
    from py4j.protocol import Py4JError

    return Py4JError


def _translated(error: Exception) -> BilmError:
    """Return the error of a worker in one line, from Spark's report of a failed job."""
    text = str(error)
    if match := ERROR.search(text):
        return {"OptionsError": OptionsError, "WeightsError": WeightsError}.get(
            match[1], DataError
        )(match[2].strip())
    if FULL in text:
        return DataError(f"{FULL}: the disk of the output or of a worker is full")
    return BilmError(f"Spark failed: {_short(error)}")


def _short(error: object) -> str:
    """Return the first line of an error that is not empty."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)[:500]


@contextmanager
def _progress_of(spark: SparkSession, n: int) -> Iterator[None]:
    """Show how many of `n` tasks of Spark are complete."""
    ended = threading.Event()

    def watch() -> None:
        tracker, done = spark.sparkContext.statusTracker(), 0
        with progress("embedding", "parts", n) as shown:
            while not ended.wait(LOG_PERIOD):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                now = sum(stage.numCompletedTasks for stage in stages if stage is not None)
                shown.add(max(now - done, 0))
                done = max(now, done)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
