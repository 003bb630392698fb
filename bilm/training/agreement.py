"""What all workers of a run take from the chief, or find the same: see `bilm.training.hosts`.

With a single process each function returns what its argument makes.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bilm.errors import DataError, HostError, WeightsError
from bilm.evaluation import Perplexity
from bilm.options import RunOptions
from bilm.training.hosts import Alone, Hosts
from bilm.training.run_folder import RunFolder
from bilm.training.saved import Saved, read_saved

LAG_SECONDS = 60.0  # how long a shared folder may take to show what the chief sees in it


class Votes(NamedTuple):
    """What a worker brings to the start of a step, and what they all make of it.

    Fields:
        stop: whether a signal asks to stop.
        late: whether the last save is long ago.
        error: what is wrong with the worker's text; empty if nothing is.
    """

    stop: bool
    late: bool
    error: str


def agreed_votes(hosts: Hosts | Alone, own: Votes) -> Votes:
    """Return what holds for any worker, with its name where its text is bad."""
    votes = [Votes(*vote) for vote in hosts.gather("step", own)]
    errors = [f"{hosts.name(k)}: {vote.error}" for k, vote in enumerate(votes) if vote.error]
    return Votes(any(v.stop for v in votes), any(v.late for v in votes), "; ".join(errors[:1]))


def check_alike(
    hosts: Hosts | Alone, options: RunOptions, files: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """Refuse workers that were not started alike.

    Args:
        hosts: the workers.
        options: of the run that was requested.
        files: what identifies each input, such as its SHA-256, by what it is.
        arguments: other values that must be the same, by name.
    Raises: HostError, the same on all, naming the worker and what differs.
    """
    own = _flat(options.to_dict()) | arguments | files
    everyone = hosts.gather("inputs", own)
    for k, other in enumerate(everyone):
        for what in own | other:
            here, there = (values.get(what) for values in (everyone[0], other))
            if here != there:
                raise HostError(
                    f"{hosts.name(k)}: {what} is {there}, but {here} on {hosts.name(0)}; expected "
                    "the same on all hosts"
                )


def digest(path: str | Path) -> str:
    """Return the first digits of a file's SHA-256. Raises: DataError if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:16]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def agreed_options(hosts: Hosts | Alone, make: Callable[[], RunOptions]) -> RunOptions:
    """Return the options that the chief makes; it alone counts the text for them."""
    made = make() if hosts.is_chief else None
    values = hosts.gather("options", made and made.to_dict())[0]
    return made or RunOptions.from_dict(values)


def agreed_checkpoint(hosts: Hosts | Alone, folder: RunFolder) -> Saved | None:
    """Return what the checkpoint says that the chief has chosen; None if there is none.

    Raises: HostError if a worker cannot read it.
    """
    saved = folder.find_saved() if hosts.is_chief else None
    name = hosts.gather("checkpoint", saved and os.path.basename(saved.path))[0]
    if hosts.is_chief or name is None:
        return saved
    return _wait_for(f"{folder.path}/{name}", hosts)


def agreed_measurement(hosts: Hosts | Alone, folder: RunFolder) -> tuple[int, Perplexity] | None:
    """Return what the chief has read of the last evaluation: see `RunFolder.read_measured`."""
    measured = folder.read_measured() if hosts.is_chief else None
    shared = hosts.gather("measured", measured and [measured[0], measured[1]._asdict()])[0]
    return measured or (shared and (shared[0], Perplexity.from_record(shared[1])))


def agreed_perplexity(hosts: Hosts | Alone, measure: Callable[[], Perplexity]) -> Perplexity:
    """Return what the chief measures while the others wait."""
    found = measure() if hosts.is_chief else None
    record = hosts.gather("evaluation", found and found._asdict())[0]
    return found or Perplexity.from_record(record)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested objects by their dotted names."""
    flat = {}
    for name, value in values.items():
        more = _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else None
        flat |= {f"{prefix}{name}": value} if more is None else more
    return flat


def _wait_for(path: str, hosts: Hosts) -> Saved:
    deadline = time.monotonic() + LAG_SECONDS
    while True:
        try:
            return read_saved(path)
        except WeightsError as error:
            if time.monotonic() > deadline:
                raise HostError(
                    f"{hosts.name(hosts.index)}: {error}, but {hosts.name(0)} has it; expected a "
                    "folder of the run that all hosts share"
                ) from None
            time.sleep(1)
