"""Decisions that all workers of a run make together; see `bilm.training.hosts.exchange`."""

from __future__ import annotations

import os
from typing import Any

from bilm.storage.checkpoint import Checkpoint
from bilm.training.devices import Devices
from bilm.training.hosts.exchange import Hosts
from bilm.training.run_folder import RunFolder
from bilm.training.training_text import TrainingText


def next_turn(
    devices: Devices, text: TrainingText, iterator: Any, stop: bool, late: bool
) -> tuple[Any, bool, bool]:
    """Agree on the next step.

    With several hosts each worker reads its batch first: if one of them cannot, no step may start,
    because the others would wait for its gradients.

    Args:
        devices: replicas and workers.
        text, iterator: the text of this worker.
        stop: whether this worker received a signal to stop.
        late: whether this worker's last save is too long ago.
    Returns: argument of this worker's next step; whether `stop` and `late` hold for any worker.
    """
    source = iterator
    if devices.several_hosts:
        with text.explaining(0):
            source = next(iterator)
    stops, lates = zip(*devices.hosts.gather("step", [stop, late]), strict=True)
    return source, any(stops), any(lates)


def agreed_checkpoint(hosts: Hosts, folder: RunFolder) -> Checkpoint | None:
    """Open the checkpoint that the chief has chosen; return None if there is none.

    Raises: WeightsError if this worker cannot read it.
    """
    saved = folder.latest_checkpoint(whole=True) if hosts.is_chief else None
    name = hosts.from_chief("checkpoint", lambda: saved and os.path.basename(saved.path))
    if hosts.is_chief or name is None:
        return saved
    checkpoint = Checkpoint(f"{folder.path}/{name}")
    checkpoint.check_all()
    return checkpoint
