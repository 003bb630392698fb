"""Modules of TensorFlow Hub in the format of TensorFlow 1, Google's and DeepPavlov's.

A module contains no options: sizes are derived from the shapes of the variables, and the rest from
the graph in `saved_model.pb`. Reading requires TensorFlow.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from bilm.errors import WeightsError
from bilm.options.model_options import ModelOptions
from bilm.storage.formats.base import StoredModel
from bilm.storage.formats.rows import StoredRow, derived_options, tf1_rows, variables_of
from bilm.storage.stored_tensors import Mix, Tensors

if TYPE_CHECKING:
    from bilm.storage.tensor_reader import TensorReader

GRAPH, MARK, INDEX = "saved_model.pb", "tfhub_module.pb", "variables/variables.index"
MAX_GRAPH_BYTES = 256 << 20  # the graphs of known modules have less than 1 MB
ROWS = (
    *tf1_rows("bilm/", "RNN_{k}/RNN/MultiRNNCell/Cell{i}/rnn/lstm_cell"),
    StoredRow("char_embed", ("bilm/char_embed",), lambda value: value[1:]),  # without padding
)
MIXES = (  # weights and gamma: Google's names, DeepPavlov's
    ("aggregation/weights", "aggregation/scaling"),
    ("aggregation/elmo_output_ELMo_W", "aggregation/elmo_output_ELMo_gamma"),
)
CLIP = re.compile(r"bilm/RNN_0/RNN/MultiRNNCell/Cell0/.*/clip_by_value[^/]*/Minimum")
SKIP = re.compile(r"bilm/RNN_0/RNN/MultiRNNCell/Cell1/rnn/while/add[^/]*")


class TfHub(StoredModel):
    """`saved_model.pb` and `variables/`; the weight file is the index of the variables, and the
    options file is the graph if no options are given."""

    format = "TensorFlow Hub module"
    weight_names = (INDEX,)
    required = (GRAPH, INDEX, MARK)
    companions = ("variables/*",)
    has_softmax = False
    needs_tensorflow = True

    def __init__(self, options_file: Path, weight_file: Path):
        super().__init__(options_file, weight_file)
        self._graph_file = self.weight_file.parent.parent / GRAPH
        self._variable_files = sorted(self.weight_file.parent.glob("variables.*"))

    def files(self) -> list[Path]:
        return list(dict.fromkeys([self.options_file, self._graph_file, *self._variable_files]))

    def read_options(self) -> ModelOptions:
        if self.options_file != self._graph_file:
            return super().read_options()
        graph = _Graph(self._graph_file)
        logging.info("%s: sizes are derived from the shapes; the rest is in the graph", graph.path)
        first_width = self.tensors.axis_lengths("CNN/W_cnn_0")["width"]
        char_cnn = {
            "activation": graph.activation(),
            "max_characters_per_token": graph.word_length(first_width),
        }
        lstm = {**graph.clips(), "use_skip_connections": graph.has_skip_connections()}
        return derived_options(self.tensors, char_cnn, lstm)

    @functools.cached_property
    def mixes(self) -> list[Mix]:
        mixes = []
        for names in MIXES:
            if self._variables.keys() >= set(names):
                weights, gamma = (np.asarray(self._variables[n], np.float32) for n in names)
                is_finite = np.isfinite(weights).all() and np.isfinite(gamma).all()
                if weights.ndim != 1 or gamma.size != 1 or not is_finite:
                    raise WeightsError(f"{self.weight_file}: {names[0]} is not a learned mix")
                mixes.append(Mix(weights, gamma.item()))
        return mixes

    @functools.cached_property
    def _variables(self) -> TensorReader:
        """All variables of the module, by their names in it."""
        from bilm.storage.tensor_reader import TensorReader

        return TensorReader(str(self.weight_file.with_suffix("")))

    @functools.cached_property
    def tensors(self) -> Tensors:
        by_name = variables_of(self._variables, ROWS, self.weight_file)
        return Tensors(self._graph_file.parent, self._variable_files, by_name)


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
        """Return the number of characters that the CNN pools over, and of a word."""
        pool = self.nodes.get("bilm/CNN/MaxPool")
        sizes = list(pool.attr["ksize"].list.i) if pool is not None else []
        if len(sizes) != 4:
            raise WeightsError(
                f"{self.path}: does not show the length of words; also pass options.json"
            )
        return int(sizes[2]) + first_width - 1

    def clips(self) -> dict[str, float]:
        """Return the clips of the cell and of the projection that exist, by the keys of options."""
        clips = {}
        for name, node in self.nodes.items():
            if not CLIP.fullmatch(name) or len(node.input) < 2:
                continue
            inputs = (input_.removeprefix("^").partition(":")[0] for input_ in node.input[:2])
            value, limit = map(self.nodes.get, inputs)
            if value is None or limit is None or limit.op != "Const":
                raise WeightsError(f"{self.path}: {name} has no constant limit")
            clips["proj_clip" if value.op == "MatMul" else "cell_clip"] = self._constant(limit)
        return clips

    def has_skip_connections(self) -> bool:
        """Return whether the second layer adds its input to its output."""
        return any(
            SKIP.fullmatch(name) and node.op in ("Add", "AddV2") and node.attr["T"].type == 1
            for name, node in self.nodes.items()
        )

    def _constant(self, node: Any) -> float:
        tensor = node.attr["value"].tensor
        content = tensor.tensor_content or np.array(tensor.float_val, "<f4").tobytes()
        if len(content) != 4:
            raise WeightsError(f"{self.path}: {node.name} is not a float32 number")
        (value,) = np.frombuffer(content, "<f4")
        return float(f"{value:.7g}")  # 0.3, not 0.300000012
