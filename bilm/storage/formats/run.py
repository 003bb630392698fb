"""Checkpoints of training, bilm's or the TensorFlow 1 reference's, beside `options.json`.

A folder that contains checkpoints is a run, whatever other files it contains. Its model is that of
the latest checkpoint whose weights can be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePath

from bilm.errors import WeightsError
from bilm.options.model_options import ModelOptions
from bilm.options.run_options import load_model_options
from bilm.storage import names
from bilm.storage.formats.base import Checkpoint, Format, LazyTensors, Softmax, one_folder
from bilm.support.model_files import CHECKPOINT, OPTIONS, VOCABULARY

INDEX = ".index"
OURS = re.compile(rf"{re.escape(CHECKPOINT)}-\d+(\.index|\.data-\d+-of-\d+|\.json)")
WORDS = re.compile(r"vocab.*\.txt")


class Run(Format):
    """A run: `weight_file` is its folder, or the index file of one of its checkpoints.

    The checkpoint is chosen once, when something of it is first needed, and then stays the same.
    """

    name = "TensorFlow checkpoint"
    needs_tensorflow = True
    _checkpoint: Checkpoint | None = None

    @classmethod
    def find(cls, paths: list[PurePath], where: str | Path) -> dict[str, PurePath] | None:
        """Choose the files of a run, at the top or in one folder inside.

        Raises: WeightsError if there are several runs, or no options beside the checkpoints.
        """
        homes = {p.parent for p in paths if len(p.parts) <= 2 and OURS.fullmatch(p.name)}
        has_options = any(len(p.parts) == 1 and p.name.endswith(OPTIONS) for p in paths)
        if has_options and all(home.parts for home in homes):
            return None  # the folder contains the options of another model
        home = one_folder(homes, where, "runs")
        if home is None:
            return None
        beside = {p.name: p for p in paths if p.parent == home}
        if OPTIONS not in beside:
            raise WeightsError(f"{where}: found checkpoints, but {OPTIONS} beside them is missing")

        # The options, the files of all checkpoints, and the vocabulary, if there is only one.
        files = {name: path for name, path in beside.items() if OURS.fullmatch(name)}
        files[OPTIONS] = beside[OPTIONS]
        vocabularies = [path for name, path in beside.items() if WORDS.fullmatch(name)]
        if len(vocabularies) == 1:
            files[VOCABULARY] = vocabularies[0]
        return files

    @classmethod
    def owns(cls, weight_file: Path) -> bool:
        """Return whether this is a folder, or the index of one checkpoint."""
        return weight_file.suffix == INDEX or weight_file.is_dir()

    @classmethod
    def of_files(cls, files: Mapping[str, Path]) -> Run:
        """Return the run in the folder of the options."""
        return cls(files[OPTIONS], files[OPTIONS].parent)

    @property
    def description(self) -> str:
        """The program that wrote the checkpoint, and the checkpoint's name."""
        checkpoint = self.checkpoint()
        program = "the TensorFlow 1 reference" if checkpoint.is_reference else "bilm"
        return f"run of {program}, {Path(checkpoint.path).name}"

    def files(self) -> list[Path]:
        """Return the options and the files of the checkpoint."""
        return [self.options_file, *self.checkpoint().files]

    def options(self) -> ModelOptions:
        """Read the options. Raises: OptionsError, WeightsError."""
        options = load_model_options(self.options_file)
        return names.with_directions(options, lambda: self.checkpoint().tensors.names)

    def tensors(self, options: ModelOptions) -> LazyTensors:
        """Open the checkpoint. Raises: WeightsError."""
        return self.checkpoint().tensors

    def softmax(self) -> Softmax:
        """Open the checkpoint, whose words are in a vocabulary file. Raises: WeightsError."""
        checkpoint = self.checkpoint(with_softmax=True)
        return Softmax(checkpoint.tensors, checkpoint.n_words, None)

    def checkpoint(self, with_softmax: bool = False) -> Checkpoint:
        """Return the checkpoint: the latest one whose weights can be read, or the given one.

        Args:
            with_softmax: when the checkpoint is chosen, also require its softmax to be whole.
        Raises: WeightsError.
        """
        if self._checkpoint is None:
            self._checkpoint = self._opened(with_softmax)
        return self._checkpoint

    def _opened(self, with_softmax: bool) -> Checkpoint:
        from bilm.storage.checkpoint import Checkpoint, latest_checkpoint

        needed = (lambda name: True) if with_softmax else names.is_bilm
        if not self.weight_file.is_dir():
            return Checkpoint.open(self.weight_file.with_suffix(""), needed)
        checkpoint = latest_checkpoint(self.weight_file, needed)
        if checkpoint is None:
            raise WeightsError(
                f"{self.weight_file}: the folder does not contain a checkpoint; expected a run"
            )
        return checkpoint

    def fingerprint_files(self) -> list[Path]:
        """Return the options and the index, which contains a checksum of every tensor."""
        options_file, *of_checkpoint = self.files()
        index = [path for path in of_checkpoint if path.suffix == INDEX]
        return [options_file, *(index or of_checkpoint)]
