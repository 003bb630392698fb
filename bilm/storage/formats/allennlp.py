"""AllenNLP: the state dict `weights.th` of a whole model, which contains an ELMo.

The ELMo may be nested in any module. It has the weights that the model was trained to, whether the
ELMo was fine-tuned or not; the files in `fta/` of older archives have those from before training.
`config.json` names the options of the ELMo, which may be missing in the archive. See Gardner et
al. 2018, AllenNLP, arXiv:1803.07640, modules `elmo` and `elmo_lstm`.
"""

import functools
import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bilm.errors import OptionsError, WeightsError
from bilm.options import schema
from bilm.options.model_options import ModelOptions
from bilm.storage.formats import rows
from bilm.storage.formats.base import (
    Identity,
    StoredModel,
    names_by_folder,
    one_folder,
    paths_inside,
)
from bilm.storage.formats.pytorch import StateDict
from bilm.storage.stored_tensors import Mix, Tensors
from bilm.support.model_files import CONFIG, HDF5_SUFFIXES, OPTIONS
from bilm.tensors import n_filters

WEIGHTS, ARCHIVED = "weights.th", "fta"  # and the folder of "files to archive"
BEST = "best.th"
TRAINING = {BEST, CONFIG}  # in the folder of a training
TOKENS = "_token_embedder."  # module of the biLM, which also contains the LSTMs
CHARACTERS = f"{TOKENS}_char_embedding_weights"
OUTER = "_elmo_lstm."  # the biLM in AllenNLP's module `Elmo`, and the LSTMs in the biLM
TYPE = "elmo_token_embedder"
# What the shapes of tensors do not determine, as in the published models.
RECIPE = {"activation": "relu", "max_characters_per_token": 50}
RECIPE_LSTM = {"cell_clip": 3, "proj_clip": 3, "use_skip_connections": True}
RECIPE_USED = (
    "%s: found no options; assumed relu, clips of 3, skip connections and words of up to 48 bytes, "
    "as in the published models. If the ELMo has others, also pass its options.json"
)
ROWS = (
    # The first row represents missing words and is not used.
    rows.StoredRow("char_embed", (CHARACTERS,), lambda value: value[1:]),
    *rows.encoder_rows(
        f"{TOKENS}char_conv_", f"{TOKENS}_highways._layers.", f"{TOKENS}_projection"
    ),
    *rows.lstm_rows(OUTER),
)


class Entry(NamedTuple):
    """An ELMo in `config.json`: its path there, and its arguments."""

    path: tuple[str, ...]
    values: Mapping[str, Any]


class AllenNlp(StoredModel):
    """`weights.th`, and beside it `config.json` or `options.json` if they exist; or the folder of a
    training, with `best.th` and `config.json`. `options_file` is the weight file if no options were
    given: they are then found in the folder, or derived from the shapes of the tensors.
    """

    format = "AllenNLP"
    weight_names = ("*.th",)
    companions = ("*.json", f"{ARCHIVED}/*.options_file")
    has_softmax = False

    def __init__(self, options_file: Path, weight_file: Path):
        home = weight_file.absolute().parent
        is_given = options_file.absolute() not in (weight_file.absolute(), home, home / CONFIG)
        super().__init__(options_file if is_given else weight_file, weight_file)

    @classmethod
    def find(cls, paths: list[PurePath], where: str | Path) -> Identity | None:
        folders = names_by_folder(paths)
        homes = [home for home, names in folders.items() if WEIGHTS in names or names >= TRAINING]
        home = one_folder(homes, where, f"models of the format {cls.format}")
        if home is None:
            return None

        # Without a configuration, a folder that also contains HDF5 weights is of bilm-tf.
        names = folders[home]
        has_options = any(name.endswith(OPTIONS) for name in names)
        has_hdf5 = any(name.endswith(HDF5_SUFFIXES) for name in names)
        if CONFIG not in names and has_options and has_hdf5:
            return None
        weights = home / (WEIGHTS if WEIGHTS in names else BEST)
        return weights, weights

    def files(self) -> list[Path]:
        candidates = [self.weight_file, self.weight_file.with_name(CONFIG), self.options_source]
        return [path for path in candidates if path is not None and path.exists()]

    def read_options(self) -> ModelOptions:
        source = self.options_source
        if source is None:
            logging.warning(RECIPE_USED, self.weight_file)
            options = rows.derived_options(self.tensors, RECIPE, RECIPE_LSTM)
        else:
            options = _read_options(source)
            logging.info("%s: options from %s", self.weight_file, source)
        _check_projections(options, self.weight_file)
        return options.replace(bidirectional=True)

    @functools.cached_property
    def tensors(self) -> Tensors:
        logging.info("%s: ELMo in the module %r", self.weight_file, self._prefix)
        by_name = rows.variables_of(self._stored, ROWS, self.weight_file, self._prefix)
        return Tensors(self.weight_file, [self.weight_file], by_name)

    @functools.cached_property
    def mixes(self) -> list[Mix]:
        entry = self._entry
        do_layer_norm = entry is not None and entry.values.get("do_layer_norm") is True
        start = f"{self._prefix.removesuffix(OUTER)}scalar_mix_"
        mixes = []
        for name in rows.numbered(start + "{i}.gamma", self._stored):
            template = name.removesuffix("gamma") + "scalar_parameters.{i}"
            parameters = rows.numbered(template, self._stored)
            weights = np.array([self._number(parameter) for parameter in parameters], np.float32)
            mixes.append(Mix(weights, self._number(name), do_layer_norm))
        return mixes

    def _number(self, name: str) -> float:
        value = np.asarray(self._stored[name])
        if value.size != 1 or value.dtype.kind != "f" or not np.isfinite(value).all():
            raise WeightsError(f"{self.weight_file}: {name} is not a finite number")
        return value.item()

    @functools.cached_property
    def _stored(self) -> StateDict:
        return StateDict(self.weight_file)

    @functools.cached_property
    def _prefix(self) -> str:
        """What precedes the names in `ROWS`: the name of the biLM's module. Raises: WeightsError
        if the file does not contain exactly one."""
        names = [name for name in self._stored if f".{name}".endswith(f".{CHARACTERS}")]
        modules = [name.removesuffix(CHARACTERS) for name in names]
        if len(modules) != 1:
            listed = ", ".join(map(ascii, modules[:20])) or "none"
            raise WeightsError(
                f"{self.weight_file}: found {listed}, expected one ELMo: one tensor whose name "
                f"ends with {CHARACTERS}"
            )
        return modules[0]

    @functools.cached_property
    def _entry(self) -> Entry | None:
        """The ELMo in `config.json`, at any depth; None without exactly one."""
        config = self.weight_file.parent / CONFIG
        waiting = [Entry((), schema.read_object(config))] if config.is_file() else []
        entries = []
        while waiting:
            entry = waiting.pop()
            if "options_file" in entry.values or entry.values.get("type") == TYPE:
                entries.append(entry)
            for name, value in entry.values.items():
                if isinstance(value, dict):
                    waiting.append(Entry((*entry.path, name), value))
        return entries[0] if len(entries) == 1 else None

    @functools.cached_property
    def options_source(self) -> Path | None:
        """The options file: the given one, the one that the configuration names, in `fta/` or below
        the folder, or the one beside the weights; no file outside the folder."""
        if self.options_file != self.weight_file:
            return self.options_file
        home, entry = self.weight_file.parent, self._entry
        candidates = []
        if entry is not None:
            archived = ".".join((*entry.path, "options_file"))
            candidates += paths_inside(home / ARCHIVED, archived)
            named = entry.values.get("options_file")
            if isinstance(named, str):
                candidates += [p for p in paths_inside(home, named) if p.name != CONFIG]
        candidates += [home / f"{self.weight_file.stem}_{OPTIONS}", home / OPTIONS]
        return next((path for path in candidates if os.path.isfile(path)), None)


def _read_options(source: Path) -> ModelOptions:
    """Read an options file as AllenNLP does."""
    values = schema.read_object(source)
    lstm = values.get("lstm")
    if isinstance(lstm, dict):
        for key in ("cell_clip", "proj_clip"):
            lstm[key] = lstm.get(key) or None  # 0 is no clipping
    try:
        options = ModelOptions.from_dict(values)
    except OptionsError as error:
        raise OptionsError(f"{source}: {error}") from None
    if options.char_cnn is None:
        raise OptionsError(f"{source}: char_cnn: missing; AllenNLP's ELMo reads characters")
    return options


def _check_projections(options: ModelOptions, path: Path) -> None:
    """Raise OptionsError for widths for which AllenNLP has projections and bilm has none."""
    lstm = options.lstm
    n_features = n_filters(options.filters)
    for name, n in (("the LSTM's dim", lstm.dim), ("the number of filters", n_features)):
        if n == lstm.projection_dim:
            raise OptionsError(
                f"{path}: {name} and projection_dim are both {n}; AllenNLP projects in this case "
                "too, which bilm does not support"
            )
