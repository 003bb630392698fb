"""`history.csv`: the curve of a run, one row for each report."""

import csv
from pathlib import Path

from absl import logging

from bilm.support.files import replacing

# Losses are mean cross-entropies in nats since the row before: the sampled loss unless the run uses
# the full softmax.
COLUMNS = (
    "step", "epoch", "loss_forward", "loss_backward", "learning_rate", "tokens_per_s",
    "heldout_forward", "heldout_backward", "heldout_perplexity",
)  # fmt: skip


class History:
    """The rows of a run's `history.csv`; without a path, they are in memory only. Rows after the
    step of the restored checkpoint are dropped, because these steps are repeated."""

    def __init__(self, path: Path | None, step: int = 0):
        self.path = path
        stored = read_history(path) if path is not None else []
        self._rows = {int(row["step"]): row for row in stored if int(row["step"]) <= step}

    def add(self, step: int, **values: float) -> None:
        """Add values to the row of a step."""
        row = self._rows.setdefault(step, {"step": str(step)})
        row |= {name: f"{value:.6g}" for name, value in values.items()}

    def write(self) -> None:
        """Write all rows, whole or not at all. Raises: OSError."""
        if self.path is None or not self._rows:
            return
        with replacing(self.path) as temporary, open(temporary, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(self._rows[step] for step in sorted(self._rows))


def read_history(path: str | Path) -> list[dict[str, str]]:
    """Return the rows of a `history.csv`, by column; none if it is missing or damaged."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, restval="missing", strict=True))
        for row in rows:
            if tuple(row) != COLUMNS:  # values beyond the last column have the name None
                raise ValueError("other columns")
            int(row["step"])
            for text in filter(None, row.values()):
                float(text)
    except FileNotFoundError:
        return []
    except (OSError, ValueError, csv.Error) as error:
        logging.warning("%s: not the history of a run (%s); ignored", path, error)
        return []
    return rows
