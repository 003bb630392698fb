"""Modules of TensorFlow Hub in the format of TensorFlow 1, Google's and DeepPavlov's.

The variables have the names of bilm-tf's graph, and nothing is transposed. A module contains no
options: sizes are derived from the shapes of the variables, and the rest from the graph in
`saved_model.pb` where it shows it. Reading requires TensorFlow.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from bilm.errors import WeightsError
from bilm.options.model_options import N_CHARACTERS_WITH_PADDING, ModelOptions
from bilm.options.run_options import load_model_options
from bilm.storage.formats.base import Format, LazyTensor, LazyTensors, Mix, one_folder
from bilm.storage.formats.derived import axis_lengths, derived_options
from bilm.support.model_files import HUB_GRAPH, HUB_INDEX, HUB_MARK

if TYPE_CHECKING:
    from bilm.storage.tensor_reader import TensorReader

MAX_GRAPH_BYTES = 256 << 20  # the graphs of known modules have less than 1 MB
SCOPE = "bilm/"
CELL = re.compile(
    r"(RNN_\d+/RNN/MultiRNNCell/Cell\d+)/rnn/lstm_cell/(kernel|bias|projection/kernel)"
)
NAMES = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}
MIXES = (  # weights and gamma: Google's names, DeepPavlov's
    ("aggregation/weights", "aggregation/scaling"),
    ("aggregation/elmo_output_ELMo_W", "aggregation/elmo_output_ELMo_gamma"),
)
STATES = "Variable"  # start of the names of the LSTM states, after `SCOPE`
CLIP = re.compile(r"bilm/RNN_0/RNN/MultiRNNCell/Cell0/.*/clip_by_value[^/]*/Minimum")
SKIP = re.compile(r"bilm/RNN_0/RNN/MultiRNNCell/Cell1/rnn/while/add[^/]*")


class TfHub(Format):
    """`saved_model.pb` and `variables/`; the weight file is the index of the variables."""

    name = "TensorFlow Hub module"
    has_softmax = False
    needs_tensorflow = True
    identified_by = (HUB_GRAPH, HUB_INDEX)

    @classmethod
    def find(cls, paths: list[PurePath], where: str | Path) -> dict[str, PurePath] | None:
        """Choose the files of a module, at the top or in one folder inside.

        Raises: WeightsError if there are several modules.
        """
        available = set(paths)
        homes = [p.parent for p in paths if p.name == HUB_MARK and len(p.parts) <= 2]
        homes = [h for h in homes if {h / HUB_GRAPH, h / HUB_INDEX} <= available]
        home = one_folder(homes, where, f"{cls.name}s")
        if home is None:
            return None
        files = {name: home / name for name in (HUB_GRAPH, HUB_INDEX, HUB_MARK)}
        for path in paths:
            if path.parent == home / "variables":
                files[f"variables/{path.name}"] = path
        return files

    @classmethod
    def owns(cls, weight_file: Path) -> bool:
        """Return whether this is the index of a module's variables."""
        return weight_file.name == Path(HUB_INDEX).name and weight_file.parent.name == "variables"

    @property
    def graph_file(self) -> Path:
        """The file of the graph."""
        return self.weight_file.parent.parent / HUB_GRAPH

    def files(self) -> list[Path]:
        """Return the options or the graph, and the files of the variables."""
        variables = sorted(self.weight_file.parent.glob("variables.*"))
        return list(dict.fromkeys([self.options_file, self.graph_file, *variables]))

    def options(self) -> ModelOptions:
        """Read the given options, or derive them. Raises: OptionsError, WeightsError."""
        if self.options_file != self.graph_file:
            options = load_model_options(self.options_file)
            return options.replace(bidirectional=options.bidirectional is not False)
        graph = _Graph(self.graph_file)
        logging.info("%s: sizes are derived from the shapes; the rest is in the graph", graph.path)
        return _derived_options(self._tensors, graph)

    def tensors(self, options: ModelOptions) -> LazyTensors:
        """Open the variables. Raises: WeightsError."""
        return self._tensors

    def mixes(self) -> list[Mix]:
        """Read the learned mix. Raises: WeightsError."""
        mixes = []
        for names in MIXES:
            if self._variables.shapes.keys() >= set(names):
                weights, gamma = (np.asarray(self._variables.read(n), np.float32) for n in names)
                is_finite = np.isfinite(weights).all() and np.isfinite(gamma).all()
                if weights.ndim != 1 or gamma.size != 1 or not is_finite:
                    raise WeightsError(f"{self.weight_file}: {names[0]} is not a learned mix")
                mixes.append(Mix(weights, float(gamma.reshape(()))))
        return mixes

    @functools.cached_property
    def _variables(self) -> TensorReader:
        """All variables of the module, by their names in it."""
        from bilm.storage.tensor_reader import TensorReader

        return TensorReader(str(self.weight_file.with_suffix("")))

    @functools.cached_property
    def _tensors(self) -> LazyTensors:
        """The tensors of the biLM by bilm's names, without the padding row."""
        variables, by_name = self._variables, {}
        for name, stored in _names_of_bilm(variables.shapes).items():
            shape, dtype = variables.shapes[stored], variables.dtypes[stored]
            by_name[name] = LazyTensor(shape, dtype, partial(variables.read, stored))
        if "char_embed" in by_name:
            by_name["char_embed"] = _without_padding(by_name["char_embed"], self.weight_file)
        paths = sorted(self.weight_file.parent.glob("variables.*"))
        return LazyTensors(str(self.weight_file.parent.parent), paths, by_name)


def _derived_options(tensors: LazyTensors, graph: _Graph) -> ModelOptions:
    """Return options from the shapes and the graph. Raises: WeightsError."""
    first_width = axis_lengths(tensors, "CNN/W_cnn_0")["width"]
    char_cnn = {
        "activation": graph.activation(),
        "max_characters_per_token": graph.word_length(first_width),
    }
    cell_clip, proj_clip = graph.clips()
    lstm = {
        "cell_clip": cell_clip,
        "proj_clip": proj_clip,
        "use_skip_connections": graph.has_skip_connections(),
    }
    return derived_options(tensors, char_cnn, lstm)


class _Graph:
    """What the graph of a module shows about the options. Raises: WeightsError."""

    def __init__(self, path: Path):
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

        self.path = path
        with open(path, "rb") as file:
            content = file.read(MAX_GRAPH_BYTES)
        try:
            saved_model = SavedModel.FromString(content)
        except DecodeError as error:
            raise WeightsError(f"{path}: truncated or damaged: {error}") from error
        if not saved_model.meta_graphs:
            raise WeightsError(f"{path}: contains no graph")
        graph = saved_model.meta_graphs[0].graph_def
        self.nodes = {node.name: node for node in graph.node}

    def activation(self) -> str:
        """Return the activation of the character CNN."""
        of_cnn = {node.op for name, node in self.nodes.items() if name.startswith("bilm/CNN/")}
        activations = of_cnn & {"Relu", "Tanh"}
        if len(activations) != 1:
            raise WeightsError(f"{self.path}: does not show the activation; also pass options.json")
        return activations.pop().lower()

    def word_length(self, first_width: int) -> int:
        """Return the number of characters that the CNN pools over."""
        pool = self.nodes.get("bilm/CNN/MaxPool")
        sizes = list(pool.attr["ksize"].list.i) if pool is not None else []
        if len(sizes) != 4:
            raise WeightsError(
                f"{self.path}: does not show the length of words; also pass options.json"
            )
        return int(sizes[2]) + first_width - 1

    def clips(self) -> tuple[float | None, float | None]:
        """Return the clips of the cell and of the projection, None for none."""
        cell = projection = None
        for name, node in self.nodes.items():
            if not CLIP.fullmatch(name) or len(node.input) < 2:
                continue
            inputs = (input_.removeprefix("^").partition(":")[0] for input_ in node.input[:2])
            value, limit = map(self.nodes.get, inputs)
            if value is None or limit is None or limit.op != "Const":
                raise WeightsError(f"{self.path}: {name} has no constant limit")
            if value.op == "MatMul":
                projection = self._constant(limit)
            else:
                cell = self._constant(limit)
        return cell, projection

    def has_skip_connections(self) -> bool:
        """Return whether the second layer adds its input to its output."""
        return any(
            SKIP.fullmatch(name) and node.op in ("Add", "AddV2") and node.attr["T"].type == 1
            for name, node in self.nodes.items()
        )

    def _constant(self, node: Any) -> float:
        import tensorflow as tf

        tensor = node.attr["value"].tensor
        try:
            if math.prod(max(d.size, 0) for d in tensor.tensor_shape.dim) != 1:
                raise ValueError("several values")
            value = float(tf.make_ndarray(tensor).reshape(()))
            return float(f"{value:.7g}")  # 0.3, not 0.300000012
        except (TypeError, ValueError) as error:
            raise WeightsError(f"{self.path}: {node.name} is not a number ({error})") from error


def _without_padding(table: LazyTensor, index: Path) -> LazyTensor:
    """Return the table of characters without its first row. Raises: WeightsError."""
    n_rows, *width = table.shape or (0,)
    if n_rows != N_CHARACTERS_WITH_PADDING:
        expected = f"expected {N_CHARACTERS_WITH_PADDING} rows"
        raise WeightsError(f"{index}: char_embed has shape {table.shape}, {expected}")
    return LazyTensor((n_rows - 1, *width), table.dtype, lambda: table.read()[1:])


def _names_of_bilm(names: Iterable[str]) -> dict[str, str]:
    """Return the module's name of each variable of the biLM, by bilm's name."""
    of_module = {}
    for name in names:
        inside = name.removeprefix(SCOPE)
        if inside == name or inside.startswith(STATES):
            continue
        if cell := CELL.fullmatch(inside):
            inside = f"{cell[1]}/LSTMCell/{NAMES[cell[2]]}"
        of_module[inside] = name
    return of_module
