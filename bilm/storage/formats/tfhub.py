"""Modules of TensorFlow Hub in the format of TensorFlow 1, Google's and DeepPavlov's.

A module contains no options: sizes are derived from the shapes of the variables, and the rest from
the graph in `saved_model.pb`. Reading requires TensorFlow.
"""

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from bilm.errors import WeightsError
from bilm.options.model_options import ModelOptions
from bilm.storage.formats.base import StoredModel
from bilm.storage.formats.rows import StoredRow, derived_options, tf1_rows, variables_of
from bilm.storage.stored_tensors import LazyTensor, Mix, Tensors

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
    companions = (MARK, "variables/*")
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
        path = self._graph_file
        logging.info("%s: sizes are derived from the shapes; the rest is in the graph", path)
        first_width = self.tensors.axis_lengths("CNN/W_cnn_0")["width"]
        return derived_options(self.tensors, *_graph_options(path, first_width))

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
    def _variables(self) -> dict[str, LazyTensor]:
        """All variables of the module, by their names in it."""
        from bilm.storage.checkpoint import tensors_in

        return tensors_in(str(self.weight_file.with_suffix("")))

    @functools.cached_property
    def tensors(self) -> Tensors:
        by_name = variables_of(self._variables, ROWS, self.weight_file)
        return Tensors(self._graph_file.parent, self._variable_files, by_name)


def _graph_options(path: Path, first_width: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the graph of a module shows about the options: of `char_cnn` and of `lstm`; the
    CNN pools over places of its first filter, of `first_width` characters. Raises: WeightsError."""
    nodes = _nodes_of(path)
    of_cnn = {node.op for name, node in nodes.items() if name.startswith("bilm/CNN/")}
    activations = of_cnn & {"Relu", "Tanh"}
    pool = nodes.get("bilm/CNN/MaxPool")
    sizes = list(pool.attr["ksize"].list.i) if pool is not None else []
    if len(activations) != 1 or len(sizes) != 4:
        raise WeightsError(
            f"{path}: does not show the activation and the length of words; also pass options.json"
        )

    lstm: dict[str, Any] = {"use_skip_connections": False}
    for name, node in nodes.items():
        is_addition = node.op in ("Add", "AddV2") and node.attr["T"].type == 1
        if SKIP.fullmatch(name) and is_addition:
            lstm["use_skip_connections"] = True
        if CLIP.fullmatch(name) and len(node.input) > 1:
            inputs = (input_.removeprefix("^").partition(":")[0] for input_ in node.input[:2])
            value, limit = map(nodes.get, inputs)
            if value is None or limit is None or limit.op != "Const":
                raise WeightsError(f"{path}: {name} has no constant limit")
            key = "proj_clip" if value.op == "MatMul" else "cell_clip"
            lstm[key] = _constant(limit, path)

    n_characters = int(sizes[2]) + first_width - 1
    char_cnn = {"activation": activations.pop().lower(), "max_characters_per_token": n_characters}
    return char_cnn, lstm


def _nodes_of(path: Path) -> dict[str, Any]:
    """Read the nodes of the first graph of a module, by name."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    with open(path, "rb") as file:
        content = file.read(MAX_GRAPH_BYTES)
    try:
        saved_model = SavedModel.FromString(content)
    except DecodeError as error:
        raise WeightsError(f"{path}: truncated or damaged: {error}") from error
    if not saved_model.meta_graphs:
        raise WeightsError(f"{path}: contains no graph")
    return {node.name: node for node in saved_model.meta_graphs[0].graph_def.node}


def _constant(node: Any, path: Path) -> float:
    tensor = node.attr["value"].tensor
    content = tensor.tensor_content or np.array(tensor.float_val, "<f4").tobytes()
    if len(content) != 4:
        raise WeightsError(f"{path}: {node.name} is not a float32 number")
    (value,) = np.frombuffer(content, "<f4")
    return float(f"{value:.7g}")  # 0.3, not 0.300000012
