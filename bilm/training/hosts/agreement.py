"""Decisions that all workers of a run make together; see `bilm.training.hosts.exchange`.

With a single process there is nothing to agree on.
"""

from __future__ import annotations

import hashlib
import os
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bilm.data.stream import Position
from bilm.errors import BilmError, DataError, HostError, WeightsError
from bilm.storage.checkpoint import Checkpoint
from bilm.support.files import sha256_of
from bilm.training.devices import Devices
from bilm.training.hosts.exchange import Alone, Hosts
from bilm.training.run_folder import Measurement, RunFolder
from bilm.training.training_text import TrainingText

LAG_SECONDS = 60.0  # maximum delay until a shared folder shows the files of the chief
DIGITS = 16  # of a SHA-256 in messages


class Turn(NamedTuple):
    """What all workers do next.

    Fields:
        source: argument of this worker's next step.
        stop: whether any worker received a signal to stop.
        late: whether the last save is too long ago.
        error: problem in the text of a worker; the same message on all.
    """

    source: Any
    stop: bool
    late: bool
    error: BilmError | None


def next_turn(devices: Devices, text: TrainingText, iterator: Any, stop: bool, late: bool) -> Turn:
    """Agree on the next step.

    With several hosts each worker reads its batch first: if one of them cannot, no step may start,
    because the others would wait for its gradients.

    Args:
        devices: replicas and workers.
        text, iterator: the text of this worker.
        stop, late: see `Turn`, for this worker alone.
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


def check_alike(hosts: Hosts | Alone, what: str, values: Mapping[str, Any]) -> None:
    """Refuse workers that differ in one of these values, which JSON can represent.

    Raises: HostError, the same on all, naming the worker and what differs.
    """
    if hosts.n_workers == 1:
        return
    first, *others = hosts.gather(what, dict(values))
    for k, other in enumerate(others, start=1):
        for name in first | other:
            if first.get(name) != other.get(name):
                raise HostError(
                    f"{hosts.name(k)}: {name} is {other.get(name)}, but {first.get(name)} on "
                    f"{hosts.name(0)}; expected the same on all hosts"
                )


def check_same_start(
    hosts: Hosts | Alone, digests: Callable[[], Mapping[str, str]], checkpoint: Checkpoint | None
) -> None:
    """Refuse workers that would start from different weights, slots or LSTM states.

    Args:
        digests: returns the digests of the weights, the LSTM states and each slot, by name.
        checkpoint: the checkpoint that was restored; None for a new run.
    Raises: HostError, the same on all, naming the worker and what differs.
    """
    if hosts.n_workers == 1:
        return
    place = "before step 1" if checkpoint is None else f"after reading {checkpoint.path}"
    values = digests().items()
    check_alike(hosts, "start values", {f"SHA-256 of the {k} {place}": v for k, v in values})


def check_place(hosts: Hosts | Alone, step: int, position: Position | None) -> None:
    """Refuse to save if the workers are at different positions in the text, which shows that their
    texts differ.

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


def agreed_measurement(hosts: Hosts | Alone, folder: RunFolder) -> Measurement | None:
    """Return the run's last evaluation, as the chief has read it."""

    def read() -> dict[str, Any] | None:
        found = folder.read_measured()
        return found and found.to_record()

    record = hosts.from_chief("measured", read)
    return record and Measurement.from_record(record)


def agreed_checkpoint(hosts: Hosts | Alone, folder: RunFolder) -> Checkpoint | None:
    """Open the checkpoint that the chief has chosen; return None if there is none.

    Raises: HostError if a worker cannot read it.
    """
    saved = folder.latest_checkpoint(whole=True) if hosts.is_chief else None
    name = hosts.from_chief("checkpoint", lambda: saved and os.path.basename(saved.path))
    if hosts.is_chief or name is None:
        return saved
    path, deadline = f"{folder.path}/{name}", time.monotonic() + LAG_SECONDS
    while True:
        try:
            found = Checkpoint.open(path)
            found.check_all()
            return found
        except WeightsError as error:
            if time.monotonic() > deadline:
                raise HostError(
                    f"{hosts.name(hosts.index)}: {error}, but {hosts.name(0)} has it; expected a "
                    "folder of the run that all hosts share"
                ) from None
            time.sleep(1)


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested objects by their dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        more = flat(value, f"{prefix}{name}.") if isinstance(value, dict) else None
        found |= {f"{prefix}{name}": value} if more is None else more
    return found


def digest(content: bytes) -> str:
    """Return the first digits of the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def digest_of_file(path: str | Path) -> str:
    """Return the first digits of a file's SHA-256. Raises: DataError if it cannot be read."""
    try:
        return sha256_of(path)[:DIGITS]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
