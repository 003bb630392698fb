"""What all workers of a run take from the chief, or find the same: see `bilm.training.hosts`.

With a single process each function returns what its argument makes.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any, NamedTuple

from bilm.data.bidirectional import Reader
from bilm.data.stream import Position, describe_shards
from bilm.errors import BilmError, DataError, HostError, WeightsError
from bilm.evaluation import Perplexity
from bilm.files import sha256_of
from bilm.options import RunOptions
from bilm.training.devices import Devices
from bilm.training.hosts import Alone, Hosts
from bilm.training.input import TrainingText
from bilm.training.run_folder import RunFolder
from bilm.training.saved import Saved, read_saved

LAG_SECONDS = 60.0  # how long a shared folder may take to show what the chief sees in it


class Turn(NamedTuple):
    """What all workers do next.

    Fields:
        source: what the step of this worker takes.
        stop: whether a signal asked any worker to stop.
        late: whether the last save is long ago.
        error: what is wrong with the text of a worker; the same on all, but for its type.
    """

    source: Any
    stop: bool
    late: bool
    error: BilmError | None


def next_turn(devices: Devices, text: TrainingText, iterator: Any, stop: bool, late: bool) -> Turn:
    """Agree on what comes next.

    With several hosts each worker reads its batch first: no step may start that the text of one of
    them cannot feed, since the others would wait for its gradients.

    Args:
        devices: with the workers.
        text, iterator: what this worker reads.
        stop, late: what this worker would do.
    """
    hosts, source, error = devices.hosts, iterator, None
    if devices.several_hosts:
        try:
            with text.explaining(0):
                source = next(iterator)
        except BilmError as found:
            error = found
    votes = hosts.gather("step", [stop, late, error and str(error)])
    stops, lates, errors = zip(*votes, strict=True)
    failed = next((k for k, message in enumerate(errors) if message), None)
    if error is None and failed is not None:
        error = HostError(f"{hosts.name(failed)}: {errors[failed]}")
    return Turn(source, any(stops), any(lates), error)


def check_alike(run: Any) -> None:
    """Refuse workers that were not started alike.

    Args:
        run: this worker's `TrainingRun`.

    Raises: HostError, the same on all, naming the worker and what differs.
    """
    if run.hosts.n_workers == 1:
        return
    names = ("seed", "n_steps", "eval_steps", "heldout_sentences", "precision", "resume")
    own = _flat(run.options.to_dict())
    own |= {name: getattr(run, name) for name in (*names, "on_bad_utf8")}
    own["saving"] = list(astuple(run.saving))
    own["heldout_prefix given"] = bool(run.heldout_prefix)
    own["SHA-256 of the vocabulary"] = _digest(run.vocab_file)
    shards = enumerate(describe_shards(run.shards))
    own |= {f"shard {k} of the text": name_and_size for k, name_and_size in shards}
    everyone = run.hosts.gather("inputs", own)
    for k, other in enumerate(everyone):
        for what in own | other:
            here, there = (values.get(what) for values in (everyone[0], other))
            if here != there:
                raise HostError(
                    f"{run.hosts.name(k)}: {what} is {there}, but {here} on {run.hosts.name(0)}; "
                    "expected the same on all hosts"
                )


def check_place(hosts: Hosts | Alone, step: int, position: Position | None) -> None:
    """Refuse to save where workers are at different places: their texts are not the same.

    Raises: HostError, the same on all, naming the worker.
    """
    places = sorted((position or {}).items())
    checksum = zlib.crc32(b"".join(array.tobytes() for _, array in places))
    for k, other in enumerate(everyone := hosts.gather("place", checksum)):
        if other != everyone[0]:
            raise HostError(
                f"{hosts.name(k)}: is at another place in the text than {hosts.name(0)} after step "
                f"{step}, so that nothing was saved; expected the same text on all hosts"
            )


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


def agreed_measurement(
    hosts: Hosts | Alone, folder: RunFolder, heldout: Reader | None = None
) -> tuple[tuple[int, Perplexity] | None, bool]:
    """Return what the chief has read of the last evaluation, see `RunFolder.read_measured`.

    Returns: that, or None if it is of another text than `heldout`; and whether it is.
    """
    is_other = hosts.is_chief and heldout is not None and folder.measured_another(heldout)
    measured = folder.read_measured() if hosts.is_chief and not is_other else None
    record = measured and [measured[0], measured[1]._asdict()]
    shared, is_other = hosts.gather("measured", [record, is_other])[0]
    return measured or (shared and (shared[0], Perplexity.from_record(shared[1]))), is_other


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


def _digest(path: str | Path) -> str:
    """Return the first digits of a file's SHA-256. Raises: DataError if it cannot be read."""
    try:
        return sha256_of(path)[:16]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
