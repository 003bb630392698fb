"""The files that the tasks of one output share: their plan and their records.

Each output has a folder of tasks: `<output>.tasks` for one file, `<output>/_tasks` for a Parquet
data set. It contains

- `plan.json`: number of tasks, digests of the model, the vocabulary and each input, and all
  settings. The first task writes it; a task with another plan is refused;
- `00000.parts`: the finished parts of task 0 (`bilm.embedding.outputs`), until they are merged;
- `00000.json`: the record of task 0, which is written when the task is complete;
- `lock`, held while one of these files is compared or written, and during the merge.

The merge replaces the folder by the manifest: `<output>.manifest.json` or
`<output>/_manifest.json`, with the plan and the records.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from bilm.errors import DataError
from bilm.support.files import (
    LOCK,
    PREFIX,
    beside,
    expanded,
    hold,
    output_path,
    replacing,
    sha256_of,
)
from bilm.support.progress import progress
from bilm.support.remote import stat
from bilm.support.urls import is_url, require_local

VERSION = 1  # of these files
PLAN, TASKS, MANIFEST = "plan.json", "_tasks", "_manifest.json"
LOCK_SECONDS, WAIT_SECONDS = 60, 0.1
SHOWN = 10  # tasks that a message lists
MAX_SHOWN = 40  # characters of a setting that a message shows


class Place(NamedTuple):
    """Where an output and the files of its tasks are.

    Fields:
        output: the file, or the folder of a Parquet data set.
        is_dataset: whether it is a data set, with one file per task.
        folder: the folder of the tasks.
        manifest: the file that describes the complete output.
    """

    output: Path
    is_dataset: bool
    folder: Path
    manifest: Path

    def parts(self, task: int) -> Path:
        """Return the name that `open_parts` turns into the folder of a task's parts."""
        return self.folder / f"{task:05d}"

    def record(self, task: int) -> Path:
        """Return the path of the record of a task."""
        return self.folder / f"{task:05d}.json"

    def file(self, task: int, n_tasks: int) -> Path:
        """Return the file of a task in a data set."""
        return self.output / f"part-{task:05d}-of-{n_tasks:05d}.parquet"


def place_of(outfile: str | os.PathLike) -> Place:
    """Return the place of an output; a name that ends with a slash is a data set.

    Raises: DataError for a URL, or for a folder that contains other files; OSError if the output
        cannot be replaced.
    """
    require_local(outfile, "an output that several tasks write")
    if os.fspath(outfile).endswith(("/", os.sep)):
        folder = Path(os.path.realpath(expanded(outfile)))
        place = Place(folder, True, folder / TASKS, folder / MANIFEST)
        _check_folder(place)
        return place
    if Path(expanded(outfile)).is_dir():
        raise DataError(
            f"{outfile}: is a folder; to write a Parquet data set to it, add a slash to its name"
        )
    file = output_path(outfile)
    return Place(file, False, beside(file, ".tasks"), beside(file, ".manifest.json"))


def _check_folder(place: Place) -> None:
    if place.output.exists() and not place.output.is_dir():
        raise DataError(f"{place.output}: found a file, expected a new folder or an earlier one")
    if not place.output.is_dir() or place.folder.exists() or place.manifest.exists():
        return
    foreign = [name for name in os.listdir(place.output) if not name.startswith(PREFIX)]
    if foreign:
        raise DataError(
            f"{place.output}: contains {foreign[0]}, but neither {TASKS} nor {MANIFEST}; choose a "
            "new folder"
        )


@contextmanager
def locked(place: Place) -> Iterator[None]:
    """Hold the lock of the folder of tasks, which is created if it is missing.

    Raises: DataError if another process holds the lock for a minute; OSError.
    """
    end = time.monotonic() + LOCK_SECONDS
    lock = None
    while lock is None:
        with suppress(FileNotFoundError, FileExistsError):  # a merge has removed the folder
            place.folder.mkdir(parents=True, exist_ok=True)
            lock = hold(place.folder / LOCK, os.O_CREAT)
        if lock is None:
            if place.folder.is_file():
                raise DataError(f"{place.folder}: found a file, expected a folder; remove it")
            if time.monotonic() > end:
                raise DataError(
                    f"{place.folder}: another process has held the lock for {LOCK_SECONDS} s, "
                    "probably bilm merge; wait until it ends, and repeat the command"
                )
            time.sleep(WAIT_SECONDS)
    try:
        yield
    finally:
        os.close(lock)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of a plan, record or manifest; None if it is missing.

    Raises: DataError if it is damaged or belongs to another version of bilm.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DataError(f"{path}: damaged ({error}); remove it and start the tasks again") from None
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise DataError(
            f"{path}: written by another version of bilm; remove it and start all tasks again"
        )
    return found


def read_manifest(place: Place) -> dict[str, Any] | None:
    """Return the manifest of an output; None if it is missing.

    Raises: DataError as `read_json` does, and if Spark has written the output.
    """
    manifest = read_json(place.manifest)
    if manifest is not None and "tasks" not in manifest:
        raise DataError(f"{place.output}: written by Spark; choose another folder, or remove it")
    return manifest


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a plan, record or manifest. Raises: OSError."""
    with replacing(path) as temporary:
        text = json.dumps({"version": VERSION, **content}, ensure_ascii=False, indent=1)
        temporary.write_text(text + "\n", encoding="utf-8")


def digest_of_plan(plan: dict[str, Any]) -> str:
    """Return a SHA-256 of a plan, which does not depend on the times of its inputs."""
    text = json.dumps(_without_times(plan), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the names of the settings that differ."""
    one, other = _without_times(one), _without_times(other)
    return [name for name in other if one.get(name) != other[name]]


def _without_times(plan: dict[str, Any]) -> dict[str, Any]:
    inputs = [{k: v for k, v in one.items() if k != "mtime_ns"} for one in plan["inputs"]]
    return plan | {"inputs": inputs, "version": VERSION}


# --- inputs ---


def describe_inputs(paths: Sequence[str], place: Place) -> list[dict[str, Any]]:
    """Return the name, the size and the digest of each input.

    A file with the size and time of an entry of the plan is not read again. For a URL, the digest
    is the version that the store states.

    Raises: OSError; DataError for a URL that cannot be accessed.
    """
    plan = read_json(place.folder / PLAN) or (read_manifest(place) or {}).get("plan") or {}
    known = {one["name"]: one for one in plan.get("inputs", [])}
    with progress("reading the inputs for their digests", "files", len(paths)) as shown:
        return [_describe(path, known.get(path, {})) for path in shown.over(paths)]


def _describe(path: str, known: dict[str, Any]) -> dict[str, Any]:
    if is_url(path):
        size, version = stat(path)
        return {"name": path, "size": size, "sha256": version, "mtime_ns": 0}
    found = os.stat(path)
    same = (known.get("size"), known.get("mtime_ns")) == (found.st_size, found.st_mtime_ns)
    digest = known["sha256"] if same else sha256_of(path)
    return {
        **{"name": path, "size": found.st_size, "sha256": digest},
        "mtime_ns": found.st_mtime_ns,
    }


def check_plan(place: Place, plan: dict[str, Any], is_new: bool) -> None:
    """Compare a plan with the one that the first task stored; call within `locked`.

    Args:
        place, plan: the output, and the plan of this task.
        is_new: whether to write the plan if there is none.
    Raises: DataError that names what differs.
    """
    path = place.folder / PLAN
    found = read_json(path)
    if found is None:
        if is_new:
            write_json(path, plan)
        return
    compare_inputs(found["inputs"], plan["inputs"], place)
    other = [name for name in plan if name != "inputs" and found.get(name) != plan[name]]
    if "tasks" in other:
        raise DataError(
            f"{place.folder}: belongs to {found['tasks']} tasks, and this command is one of "
            f"{plan['tasks']}; use --shard i/{found['tasks']} with the number i of the share, from "
            "0, in all tasks, or remove the folder and start all of them again"
        )
    if other:
        differing = ", ".join(f"{n} ({_shown(plan[n])}, not {_shown(found.get(n))})" for n in other)
        raise DataError(
            f"{place.folder}: this task differs from the others in {differing}; all tasks must "
            "have the same model and settings: repeat the command of the others, or remove the "
            "folder and start all tasks again"
        )


def _shown(value: object) -> str:
    """Return a setting for a message; of a digest, only the start."""
    return str(value)[:MAX_SHOWN]


def compare_inputs(
    expected: list[dict[str, Any]], found: list[dict[str, Any]], place: Place
) -> None:
    """Raise DataError, with the name of a file, if the inputs of two tasks differ."""
    names = [one["name"] for one in expected]
    others = [one["name"] for one in found]
    if names != others:
        differing = sorted(set(names) ^ set(others)) or others
        raise DataError(
            f"{place.folder}: the other tasks read {len(names)} files and this one {len(others)}; "
            f"{differing[0]} is not an input of all of them; restore the inputs, or remove the "
            "folder and start all tasks again"
        )
    for one, other in zip(expected, found, strict=True):
        if (one["size"], one["sha256"]) != (other["size"], other["sha256"]):
            raise DataError(
                f"{one['name']}: has changed since the first task started ({one['size']:,} bytes, "
                f"now {other['size']:,}, or other content); restore it, or remove {place.folder} "
                "and start all tasks again"
            )


def listed(numbers: Sequence[int]) -> str:
    """Return the numbers of tasks for a message."""
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
    return ", ".join(map(str, numbers[:SHOWN])) + more
