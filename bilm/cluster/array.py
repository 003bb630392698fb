"""A corpus embedded by independent tasks, such as a Slurm array, and merged.

Tasks need a common folder and no connection. Each one embeds a share of the corpus
(`bilm.data.shares`) and leaves its parts, or one file of a data set, and a record. `merge_tasks`
checks that every task is complete and that all of them had the same inputs, model and settings.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

import bilm.embedding.outputs as outputs
from bilm.cluster import plan as plans
from bilm.cluster.plan import Place, place_of
from bilm.data.readers import Record
from bilm.data.shares import input_files, open_share
from bilm.embedding.corpus import Settings, Work, prepare, refuse_equal_names, short_name, survey
from bilm.embedding.embedding_file import dataset_name
from bilm.embedding.outputs import WRITERS, Content, Parts, format_of, open_parts, stored_digest
from bilm.errors import DataError, OptionsError
from bilm.storage.finding.download import local_copy
from bilm.storage.stored_model import StoredModel, open_model
from bilm.support.files import LOCK, beside, expanded, hold, remove_leftovers, replacing, scratch
from bilm.support.model_files import protect
from bilm.support.progress import progress

SLURM = "slurm"
MAX_TASKS = 100_000


class TaskResult(NamedTuple):
    """The result of a task.

    Fields:
        task, n_tasks: its number, from 0, and the number of tasks.
        n_sentences: number of sentences in its share.
        state: "finished" if this call finished it, "complete" if it was complete before, and
            "merged" if the output of all tasks exists.
    """

    task: int
    n_tasks: int
    n_sentences: int
    state: str


class Merged(NamedTuple):
    """A merged output: the numbers of its tasks and sentences."""

    n_tasks: int
    n_sentences: int


def parse_shard(text: str, environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return the number of a task, from 0, and the number of tasks.

    Args:
        text: "i/n", such as "0/4"; or "slurm", for the variables `SLURM_ARRAY_TASK_ID`,
            `_COUNT`, `_MIN` and `_STEP` of an array job.
        environment: the environment variables.
    Raises: OptionsError for another text or if a variable is missing or wrong.
    """
    if text == SLURM:
        prefix = "SLURM_ARRAY_TASK_"
        found = [environment.get(f"{prefix}{name}", "") for name in ("ID", "COUNT")]
        found += [environment.get(f"{prefix}{name}", default) for name, default in _SLURM_DEFAULTS]
        names = ("ID", "COUNT", "MIN", "STEP")
        wrong = [
            f"{prefix}{name} is {value!r}" if value else f"{prefix}{name} is not set"
            for name, value in zip(names, found, strict=True)
            if not re.fullmatch("[0-9]{1,9}", value) or (name == "STEP" and not int(value))
        ]
        if wrong:
            raise OptionsError(
                f"--shard slurm: {wrong[0]}; expected the variables of an array job (sbatch "
                "--array); elsewhere, use --shard i/n"
            )
        number, n, first, step = map(int, found)
        index, rest = divmod(number - first, step)
        if rest or not 0 <= index < n:
            raise OptionsError(
                f"--shard slurm: task {number} is not one of {n} tasks from {first} in steps of "
                f"{step}; use an array without gaps, such as --array=0-{n - 1}, or --shard i/n"
            )
        return index, n
    match = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
    if match is None or not int(match[1]) < int(match[2]) <= MAX_TASKS:
        raise OptionsError(
            f"--shard {text}: expected i/n with the number i of the task, from 0 to n - 1, and the "
            f"number n of tasks, such as 0/4; or {SLURM}"
        )
    return int(match[1]), int(match[2])


_SLURM_DEFAULTS = (("MIN", "0"), ("STEP", "1"))


def embed_task(
    vocab_file: str | Path | None,
    dataset_file: str | Path,
    options_file: str | Path | StoredModel,
    weight_file: str | Path | None,
    outfile: str | Path,
    task: int,
    n_tasks: int,
    reading: Mapping[str, Any] | None = None,
    **settings: Any,
) -> TaskResult:
    """Embed one of `n_tasks` shares of a corpus.

    An interrupted task continues after its last finished part. A task that is complete is checked
    and not repeated.

    Args:
        vocab_file, dataset_file, options_file, weight_file: see `dump_bilm_embeddings`.
        outfile: the file into which `merge_tasks` merges all shares; or a folder, with a slash at
            its end, for a Parquet data set with one file per task.
        task, n_tasks: number of the task, from 0, and number of tasks.
        reading: arguments of `bilm.data.readers.Corpus`.
        settings: arguments of `bilm.embedding.corpus.Settings`.
    Raises: DataError if inputs, model or settings differ from those of other tasks, or if another
        process runs the same task; and the errors of `dump_bilm_embeddings`.
    """
    given = {name: value for name, value in (reading or {}).items() if value is not None}
    chosen = Settings(**settings)
    place = place_of(outfile)
    form = "parquet" if place.is_dataset else format_of(outfile)
    vocab_file = None if vocab_file is None else expanded(local_copy(vocab_file))
    dataset_file = expanded(dataset_file)
    paths = input_files(dataset_file)
    model = open_model(options_file, weight_file)
    protect_output(place, *paths, vocab_file, *model.own_files)
    inputs = plans.describe_inputs(paths, place)
    plan = {
        "tasks": n_tasks,
        "form": form,
        "is_dataset": place.is_dataset,
        "inputs": inputs,
        **given,
        **chosen.identity(model, vocab_file),
    }
    # The plan is written after the first reading, so that other tasks do not have to follow the
    # plan of a command with an error.
    if (done := _join(place, task, plan, is_new=False)) is not None:
        return done
    files, share = open_share(dataset_file, task, n_tasks, **given)
    if files != paths:
        raise DataError(f"{dataset_file}: matches other files than before; repeat the command")
    text = survey(share, chosen, form)
    work = prepare(text, model, vocab_file, chosen, form)
    with open_parts(place.parts(task), work.run | {"task": [task, n_tasks]}) as parts:
        # Another process may have completed the task while this one prepared it.
        if (done := _join(place, task, plan, is_new=True)) is not None:
            if place.is_dataset and done.state == "complete":
                parts.remove()
            return done
        work.write_parts(parts)
        plans.compare_inputs(inputs, plans.describe_inputs(paths, place), place)
        _finish(place, task, plan, work, parts)
    return TaskResult(task, n_tasks, text.n_sentences, "finished")


def _join(place: Place, task: int, plan: dict[str, Any], is_new: bool) -> TaskResult | None:
    """Compare the plan with the stored one; return the result of a task that is complete.

    Args:
        place, task, plan: the output, the number of the task, and its plan.
        is_new: whether to write the plan if there is none.
    Raises: DataError that names what differs.
    """
    with plans.locked(place):
        try:
            found = _merged(place, plan)
            if found is None:
                plans.check_plan(place, plan, is_new)
            else:  # only late tasks have written to the folder
                _remove(place)
        finally:
            _remove_empty(place)
    if found is not None:
        return TaskResult(task, plan["tasks"], found["tasks"][task]["sentences"], "merged")
    record = plans.read_json(place.record(task))
    if record is not None and _is_complete(place, task, record, plan):
        return TaskResult(task, plan["tasks"], record["sentences"], "complete")
    return None


def protect_output(place: Place, *inputs: str | Path | None) -> None:
    """Raise DataError if the output replaces an input or a file of a model."""
    if not place.is_dataset:
        protect(place.output, *inputs)
        return
    for path in inputs:
        if path is not None and place.output in Path(os.path.realpath(path)).parents:
            raise DataError(f"{place.output}: contains the input {path}; choose another folder")


def _finish(place: Place, task: int, plan: dict[str, Any], work: Work, parts: Parts) -> None:
    """Write the file of a task of a data set, and the record of the task."""
    text, content = work.text, work.content
    record: dict[str, Any] = {
        "task": task,
        "plan": plans.digest_of_plan(plan),
        "sentences": text.n_sentences,
        "tokens": text.n_tokens,
        "content": content._asdict(),
        "parts": [digest.hex() for digest in text.digests],
    }
    if place.is_dataset:
        file = place.file(task, plan["tasks"])
        paths = [parts.path(part) for part in range(len(text.digests))]
        with replacing(file) as new, progress("writing", "parts", len(paths)) as shown:
            outputs.write_parquet(new, shown.over(paths), content)
        record["file"], record["bytes"] = file.name, file.stat().st_size
    plans.write_json(place.record(task), record)
    if place.is_dataset:
        parts.remove()


def _is_complete(place: Place, task: int, record: dict[str, Any], plan: dict[str, Any]) -> bool:
    """Return whether the files that a record describes exist; log a warning if they do not."""
    problem = _problem(place, task, record, plan)
    if problem:
        logging.warning("%s; task %d starts again", problem, task)
        place.record(task).unlink()
    return not problem


def _problem(place: Place, task: int, record: dict[str, Any], plan: dict[str, Any]) -> str:
    """Return what is wrong with the files of a complete task; "" if nothing is."""
    if record["plan"] != plans.digest_of_plan(plan):
        return f"{place.record(task)}: belongs to other settings"
    if place.is_dataset:
        file = place.output / record["file"]
        if not file.is_file():
            return f"{file}: is missing"
        size = file.stat().st_size
        expected = record["bytes"]
        return f"{file}: has {size:,} bytes, expected {expected:,}" if size != expected else ""
    for path, digest in zip(_parts(place, task, record), record["parts"], strict=True):
        if not path.is_file():
            return f"{path}: is missing"
        if stored_digest(path).hex() != digest:
            return f"{path}: contains other sentences than the record of the task states"
    return ""


def _parts(place: Place, task: int, record: dict[str, Any]) -> list[Path]:
    """Return the paths of the parts of a task."""
    parts = Parts(place.output, beside(place.parts(task), ".parts"))
    return [parts.path(part) for part in range(len(record["parts"]))]


# --- merging ---


def merge_tasks(outfile: str | Path) -> Merged:
    """Check that all tasks of an output are complete, and merge them.

    One file is written from the parts of all tasks, in the order of the corpus. A data set remains
    as it is. Both get a manifest: see `bilm.cluster.plan`.

    Args:
        outfile: the output of `embed_task`.
    Raises: DataError if a task is missing, still running, incomplete or damaged, or if two
        sentences have the same id; OSError if the output cannot be written.
    """
    place = place_of(outfile)
    if not (place.folder / plans.PLAN).exists():
        return _merged_before(place)
    with plans.locked(place):
        plan = plans.read_json(place.folder / plans.PLAN)
        if plan is None:  # another merge has ended while this one waited
            _remove_empty(place)
            return _merged_before(place)
        plan.pop("version")
        records = _records(place, plan)
        _check_ids(place, plan, records)
        if not place.is_dataset:
            _write_file(place, plan, records)
        n_sentences = sum(record["sentences"] for record in records)
        plans.write_json(
            place.manifest,
            {
                "sentences": n_sentences,
                "tokens": sum(record["tokens"] for record in records),
                **({} if place.is_dataset else _version(place.output)),
                "plan": plan,
                "tasks": [_described(record) for record in records],
            },
        )
        _remove(place)
    return Merged(len(records), n_sentences)


def _merged_before(place: Place) -> Merged:
    """Return the result of an earlier merge. Raises: DataError if there was none."""
    manifest = plans.read_manifest(place)
    if manifest is None:
        raise DataError(
            f"{place.folder}: is missing; run the tasks first, with bilm embed --shard i/n and the "
            "same --output"
        )
    if changed := _changed(place, manifest):
        raise DataError(
            f"{changed}: is missing or has changed since the merge; restore it, or remove "
            f"{place.output if place.is_dataset else place.manifest} and start all tasks again"
        )
    remove_leftovers(place.manifest)  # of a merge that was killed at its end
    return Merged(len(manifest["tasks"]), manifest["sentences"])


def _described(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the manifest states about a task."""
    names = ("task", "sentences", "tokens", "file", "bytes")
    return {name: record[name] for name in names if name in record}


def _records(place: Place, plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records of all tasks. Raises: DataError if one is missing or wrong."""
    n_tasks, records = plan["tasks"], []
    missing: list[int] = []
    running: list[int] = []
    for task in range(n_tasks):
        record = plans.read_json(place.record(task))
        if record is not None:
            if problem := _problem(place, task, record, plan):
                again = f"start task {task} again, with --shard {task}/{n_tasks}"
                raise DataError(f"{problem}; {again}")
            records.append(record)
        else:
            (running if _is_running(place, task) else missing).append(task)
    if not missing and not running:
        return records
    found = []
    if running:
        found.append(f"still running: {plans.listed(running)}; wait until they end")
    if missing:
        found.append(
            f"missing or interrupted: {plans.listed(missing)}; start each of them again with the "
            f"same command, such as --shard {missing[0]}/{n_tasks}"
        )
    raise DataError(
        f"{place.output}: {len(records)} of {n_tasks} tasks are complete; {'. '.join(found)}"
    )


def _is_running(place: Place, task: int) -> bool:
    """Return whether a process holds the lock of a task's parts."""
    path = beside(place.parts(task), ".parts") / LOCK
    try:
        lock = hold(path)
    except FileNotFoundError:
        return False
    if lock is not None:
        os.close(lock)
    return lock is None


def _content(plan: dict[str, Any], records: list[dict[str, Any]]) -> Content:
    """Return the content of the merged output."""
    contents = [Content(**record["content"]) for record in records]
    return contents[0]._replace(
        shape=tuple(contents[0].shape),
        n_sentences=sum(content.n_sentences for content in contents),
        n_rows=sum(content.n_rows for content in contents),
    )


def _check_ids(place: Place, plan: dict[str, Any], records: list[dict[str, Any]]) -> None:
    """Raise DataError if two sentences of different tasks have the same id."""
    content = _content(plan, records)
    if not content.has_ids:
        return
    name_of = dataset_name if content.by_sentence else str
    shortened = array("Q")  # 8 bytes per id
    with progress("comparing ids", "sentences", content.n_sentences) as shown:
        for id_ in _ids(place, records, content):
            shortened.append(short_name(name_of(id_)))
            shown.add(1)
    again = (Record([], id_) for id_ in _ids(place, records, content))
    refuse_equal_names(again, str(place.output), shortened, name_of)


def _ids(place: Place, records: list[dict[str, Any]], content: Content) -> Iterator[str]:
    """Yield the ids of all sentences, in order."""
    for record in records:
        if place.is_dataset:
            yield from outputs.parquet_ids(place.output / record["file"])
            continue
        for path in _parts(place, record["task"], record):
            for sentence in outputs.read_records(path, content):
                yield sentence.id or ""


def _write_file(place: Place, plan: dict[str, Any], records: list[dict[str, Any]]) -> None:
    """Write one file from the parts of all tasks."""
    paths = [path for record in records for path in _parts(place, record["task"], record)]
    protect(place.output)
    with (
        replacing(place.output) as merged,
        progress("merging", "parts", len(paths)) as shown,
    ):
        WRITERS[plan["form"]](merged, shown.over(paths), _content(plan, records))


def _remove(place: Place) -> None:
    """Remove the folder of tasks; a task that starts later finds the manifest."""
    with scratch(place.manifest) as folder:
        os.rename(place.folder, folder / "tasks")


def _remove_empty(place: Place) -> None:
    """Remove a folder of tasks that contains only the lock, which this process holds."""
    with suppress(OSError):  # it is missing, or another process creates the lock again
        if os.listdir(place.folder) == [LOCK]:
            (place.folder / LOCK).unlink()
            place.folder.rmdir()


def _version(path: Path) -> dict[str, int]:
    found = path.stat()
    return {"bytes": found.st_size, "mtime_ns": found.st_mtime_ns}


def _merged(place: Place, plan: dict[str, Any]) -> dict[str, Any] | None:
    """Return the manifest of an output that the tasks of this plan have written; None if there is
    none. Raises: DataError if a data set belongs to another plan."""
    manifest = plans.read_manifest(place)
    if manifest is None or (place.folder / plans.PLAN).exists():
        return None
    same = plans.digest_of_plan(manifest["plan"]) == plans.digest_of_plan(plan)
    changed = _changed(place, manifest)
    if same and changed is None:
        return manifest
    if place.is_dataset:
        reason = (
            f"{changed.name} is missing or has changed"
            if changed
            else (f"this task differs in {', '.join(plans.differing(manifest['plan'], plan))}")
        )
        raise DataError(
            f"{place.output}: contains a complete data set of {manifest['plan']['tasks']} tasks, "
            f"but {reason}; choose a new folder, or remove this one"
        )
    return None


def _changed(place: Place, manifest: dict[str, Any]) -> Path | None:
    """Return a file that a manifest describes and that is missing or has changed, or None."""
    if place.is_dataset:
        files = [(place.output / one["file"], one["bytes"]) for one in manifest["tasks"]]
        return next((p for p, size in files if not p.is_file() or p.stat().st_size != size), None)
    version = {name: manifest[name] for name in ("bytes", "mtime_ns")}
    is_same = place.output.is_file() and _version(place.output) == version
    return None if is_same else place.output
