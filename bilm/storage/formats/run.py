"""Checkpoints of training, bilm's or the TensorFlow 1 reference's, beside `options.json`. A folder
that contains checkpoints is a run, whatever other files it contains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from bilm.errors import WeightsError
from bilm.options import schema
from bilm.storage.formats.base import Identity, StoredModel, names_by_folder, one_folder
from bilm.storage.stored_tensors import Softmax, Tensors
from bilm.support.model_files import CHECKPOINT, CHECKPOINT_FILE, MEASURED, NGRAMS, OPTIONS
from bilm.tensors import is_bilm

if TYPE_CHECKING:
    from bilm.storage.checkpoint import Checkpoint

INDEX, VOCABULARIES = ".index", "vocab*.txt"  # of the reference, vocab-2016-09-10.txt


class Run(StoredModel):
    """A run: `weight_file` is its folder, or the index file of one of its checkpoints. The
    checkpoint is chosen when something of it is first needed, and then stays the same.
    """

    format = "TensorFlow checkpoint"
    weight_names = (f"*{INDEX}",)
    # The index, data and JSON files of checkpoints, without the graph of the reference (`.meta`).
    companions = (f"{CHECKPOINT}-*.[idj]*", VOCABULARIES, NGRAMS, MEASURED)
    needs_tensorflow = True

    def __init__(self, options_file: Path, weight_file: Path):
        super().__init__(options_file, weight_file)
        self.ngrams_path = self.folder / NGRAMS
        vocabularies = list(self.folder.glob(VOCABULARIES))
        if len(vocabularies) == 1:
            self.vocabulary_path = vocabularies[0]

    @classmethod
    def find(cls, paths: list[PurePath], where: str | Path) -> Identity | None:
        folders = names_by_folder(paths)
        homes = [h for h, names in folders.items() if any(map(CHECKPOINT_FILE.fullmatch, names))]
        top = PurePath()
        has_options = any(name.endswith(OPTIONS) for name in folders[top])
        if has_options and top not in homes:
            return None  # the folder contains the options of another model
        home = one_folder(homes, where, "runs")
        if home is None:
            return None
        if OPTIONS not in folders[home]:
            raise WeightsError(f"{where}: found checkpoints, but {OPTIONS} beside them is missing")
        return home / OPTIONS, home

    @classmethod
    def owns(cls, weight_file: Path) -> bool:
        return weight_file.is_dir() or super().owns(weight_file)

    @property
    def description(self) -> str:
        program = "the TensorFlow 1 reference" if self.checkpoint.is_reference else "bilm"
        return f"run of {program}, {Path(self.checkpoint.path).name}"

    def files(self) -> list[Path]:
        return [self.options_file, *self.checkpoint.files]

    @property
    def tensors(self) -> Tensors:
        return self.checkpoint.tensors

    @cached_property
    def softmax(self) -> Softmax:
        if "checkpoint" in vars(self):  # the softmax must belong to the weights in use
            self.checkpoint.check(lambda name: not is_bilm(name))
        else:
            self.checkpoint = self._choose(lambda name: True)
        return Softmax(self.checkpoint.tensors, self.checkpoint.n_words, words=None)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The given checkpoint, or the latest one whose weights can be read; if the softmax is
        requested first, including that."""
        return self._choose(is_bilm)

    def _choose(self, needed: Callable[[str], bool]) -> Checkpoint:
        from bilm.storage.checkpoint import Checkpoint, latest_checkpoint

        if not self.weight_file.is_dir():
            checkpoint = Checkpoint(self.weight_file.with_suffix(""))
            checkpoint.check(needed)
            return checkpoint
        latest = latest_checkpoint(self.weight_file, needed)
        if latest is None:
            raise WeightsError(
                f"{self.weight_file}: the folder does not contain a checkpoint; expected a run"
            )
        return latest

    def evaluation(self) -> Mapping[str, Any]:
        if self.checkpoint.is_reference:
            return {}
        record = schema.read_object(self.folder / MEASURED)
        return record if record.get("step") == self.checkpoint.record.step else {}

    def fingerprint_files(self) -> list[Path]:
        index = Path(self.checkpoint.path + INDEX)  # contains a checksum of every tensor
        return [self.options_file, index]
