"""AllenNLP's ELMo interface on PyTorch: `Elmo`, `ElmoEmbedder`, `batch_to_ids`.

Programs that were written for `allennlp.modules.elmo` and `allennlp.commands.elmo` (0.2 to 2.10)
import these names from `bilm.allennlp` instead; docs/migration.md lists the differences. Importing
this module selects the PyTorch backend of Keras, unless Keras has been imported or
KERAS_BACKEND is set. `cuda_device`, `vocab_to_cache` and `word_inputs` are accepted and ignored.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bilm.errors import DataError, OptionsError
from bilm.support.process import prefer_torch, require_backend

prefer_torch()
require_backend("torch", "PyTorch", "bilm.allennlp")

import torch

from bilm.data.alphabets import ByteAlphabet
from bilm.data.marks import BOS, EOS
from bilm.data.model_ids import padded, shifted
from bilm.embedding.embedder import ElmoEmbedder as Embedder
from bilm.inference.words import batches
from bilm.language_model import BiLM
from bilm.layers.functional import without_marks
from bilm.layers.scalar_mix import ScalarMix
from bilm.options.model_options import N_CHARACTERS_WITH_PADDING
from bilm.storage.formats import allennlp as stored_allennlp
from bilm.storage.formats.rows import variables_of
from bilm.storage.hdf5 import NewHDF5
from bilm.storage.stored_model import StoredModel, open_model
from bilm.storage.stored_tensors import Tensors
from bilm.storage.stored_weights import StoredWeights
from bilm.support.files import replacing

DEFAULT_MODEL = "original"  # AllenNLP's default options and weights
MAX_CHARACTERS = 50  # of a word with its two marks
SPELL = ByteAlphabet(MAX_CHARACTERS)
ID_TYPES = (torch.int16, torch.int32, torch.int64)  # smaller types cannot hold the marks


def batch_to_ids(batch: Iterable[Iterable[str]]) -> torch.Tensor:
    """Convert sentences, lists of words, to character ids without marks of sentences: int64
    (B, T, 50), padded with 0. Raises: DataError if a sentence is not a list of words."""
    return torch.as_tensor(padded(batch, SPELL, shape=(MAX_CHARACTERS,)))


def _check_ids(ids: torch.Tensor) -> None:
    is_usable = ids.dtype in ID_TYPES and ids.dim() > 1 and ids.shape[-1] == MAX_CHARACTERS
    if not is_usable or ((ids < 0) | (ids >= N_CHARACTERS_WITH_PADDING)).any():
        raise DataError(
            f"found ids {ids.dtype} of shape {tuple(ids.shape)}, expected the result of "
            f"batch_to_ids: an int64 tensor (B, T, {MAX_CHARACTERS}) with values from 0 to "
            f"{N_CHARACTERS_WITH_PADDING - 1}"
        )


def _with_marks(ids: torch.Tensor) -> torch.Tensor:
    """Add the marks of sentences: integer (B, T, C) -> (B, T + 2, C). Padding is at the end."""
    begin, end = torch.as_tensor(shifted(SPELL([BOS, EOS])), dtype=ids.dtype, device=ids.device)
    n_rows, n_steps, n_characters = ids.shape
    marked = ids.new_zeros((n_rows, n_steps + 2, n_characters))
    marked[:, 0] = begin
    marked[:, 1:-1] = ids
    lengths = (ids > 0).any(dim=-1).sum(dim=1)
    marked[torch.arange(n_rows, device=ids.device), lengths + 1] = end
    return marked


class _ElmoBiLm(torch.nn.Module):
    """The layers of a biLM; arguments and errors are those of `Elmo`."""

    def __init__(
        self,
        options_file: str | Path | StoredModel,
        weight_file: str | Path | None = None,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
    ):
        super().__init__()
        stored = open_model(options_file, weight_file)
        cnn = stored.options.char_cnn
        if cnn is None or cnn.max_characters_per_token != MAX_CHARACTERS:
            raise OptionsError(
                f"{stored}: does not read {MAX_CHARACTERS} characters per word, which "
                "bilm.allennlp requires; use bilm.Elmo or bilm.ElmoEmbedder"
            )
        self.bilm = stored.build()
        self.bilm.trainable = requires_grad
        self.num_layers = self.bilm.options.lstm.n_layers + 1

    def get_output_dim(self) -> int:
        """Return the number of features of a layer, 2 P."""
        return len(self.bilm.directions) * self.bilm.options.lstm.projection_dim

    def forward(self, inputs: torch.Tensor, word_inputs: object = None) -> dict[str, Any]:
        """Return `activations`, the layers of ids (B, T, 50) with the marks of sentences: a list of
        tensors float (B, T + 2, 2 P), zero at padding; and `mask`, boolean (B, T + 2)."""
        _check_ids(inputs)
        ids = _with_marks(inputs)  # B, T + 2, C
        mask = (ids > 0).any(dim=-1)  # B, T + 2

        # The longest sentences first, so that no LSTM runs over most of the padding.
        order = torch.argsort(mask.sum(dim=1), descending=True, stable=True)
        ids = ids[order]
        result = self.bilm(ids, training=self.training, vectors=self._encode(ids))
        layers = result["layers"][torch.argsort(order)]  # B, layers, T + 2, 2 P
        layers = torch.where(mask[:, None, :, None], layers, 0.0)
        return {"activations": list(layers.unbind(1)), "mask": mask}

    def __getstate__(self) -> dict[str, Any]:
        """Return options and values of the biLM, which `__setstate__` builds again."""
        modules = self._modules.copy()
        modules.pop("bilm")
        stored = self.bilm.options, self.bilm.trainable, self.bilm.get_weights()
        return {**self.__dict__, "_modules": modules, "_stored": stored}

    def __setstate__(self, state: dict[str, Any]) -> None:
        options, trains, values = state.pop("_stored")
        super().__setstate__(state)
        self.bilm = BiLM(options, padding=True, name="bilm")
        self.bilm.build()
        self.bilm.trainable = trains
        self.bilm.set_weights(values)

    def _encode(self, ids: torch.Tensor) -> torch.Tensor:
        """Encode each distinct word once, without most of its padding: (B, T, C) -> (B, T, P)."""
        if not len(ids):
            width = self.bilm.options.lstm.projection_dim
            return torch.zeros((*ids.shape[:-1], width), device=ids.device)

        # The distinct words, and the characters of each before its padding, whichever id that has.
        rows, places = torch.unique(ids.reshape(-1, ids.shape[-1]), dim=0, return_inverse=True)
        is_character = rows != rows[:, -1:]  # U, C
        numbers = torch.arange(1, rows.shape[1] + 1, device=rows.device)
        lengths = (is_character * numbers).amax(dim=1).cpu().numpy()  # U

        # Words of similar length are encoded together.
        groups = []
        encoded = []
        for group, n_read in batches(lengths, rows.shape[1], self.bilm.options.filters):
            groups.append(torch.as_tensor(group, device=rows.device))
            encoded.append(self.bilm.encoder(rows[groups[-1], :n_read]))

        vectors = torch.cat(encoded)[torch.argsort(torch.cat(groups))]  # U, P
        return vectors[places].reshape(*ids.shape[:-1], -1)


class Elmo(torch.nn.Module):
    """Learned mixes of the layers of a biLM, as `allennlp.modules.elmo.Elmo`.

    Args:
        options_file, weight_file: the model; or its folder, archive, URL or name as `options_file`.
        num_output_representations: number of mixes, each with its own weights.
        requires_grad: whether to train the biLM, too.
        do_layer_norm: normalize the layers over the batch before mixing.
        dropout: dropout rate on the outputs, in training.
        keep_sentence_boundaries: whether to return the vectors of the marks of sentences, too.
        scalar_mix_parameters: fixed weights of the layers before the softmax; None to learn them.
        module: an `_ElmoBiLm` to use instead of files.
    Raises: OptionsError, WeightsError; ValueError for contradicting arguments.

    Example:
        elmo = Elmo("options.json", "weights.hdf5", 1, dropout=0)
        vectors = elmo(batch_to_ids([["She", "rose", "."]]))["elmo_representations"][0]
    """

    def __init__(
        self,
        options_file: str | Path | StoredModel | None,
        weight_file: str | Path | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: torch.nn.Module | None = None,
    ):
        super().__init__()
        if (module is None) == (options_file is None):
            raise ValueError("expected either options_file and weight_file, or module")
        self._elmo_lstm: Any = module
        if options_file is not None:
            self._elmo_lstm = _ElmoBiLm(options_file, weight_file, requires_grad)

        start = None if scalar_mix_parameters is None else (list(scalar_mix_parameters), 1.0)
        self._mixes = torch.nn.ModuleList()
        for k in range(num_output_representations):
            mix = ScalarMix(do_layer_norm, None, start, name=f"scalar_mix_{k}")
            mix.build((None, self._elmo_lstm.num_layers, None, None))
            mix.trainable = scalar_mix_parameters is None
            self._mixes.append(mix)
        self._dropout = torch.nn.Dropout(p=dropout)
        self._keep_sentence_boundaries = keep_sentence_boundaries

    def get_output_dim(self) -> int:
        """Return the number of features of a representation, 2 P."""
        return self._elmo_lstm.get_output_dim()

    def _load_from_state_dict(
        self, state_dict: dict[str, torch.Tensor], prefix: str, *others: Any
    ) -> None:
        """Load values, also those of AllenNLP; `load_state_dict` calls this method."""
        if prefix + stored_allennlp.OUTER + stored_allennlp.CHARACTERS in state_dict:
            self._translate(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _translate(self, state_dict: dict[str, torch.Tensor], prefix: str) -> None:
        """Replace the tensors of AllenNLP's `Elmo` in a state dict by those of this module; PyTorch
        reports mixes that it does not have. Raises: WeightsError."""
        # The tensors of the biLM.
        outer, bilm = prefix + stored_allennlp.OUTER, self._elmo_lstm.bilm
        theirs = [name for name in state_dict if name.startswith(outer)]
        arrays = {name: state_dict.pop(name).detach().cpu().numpy() for name in theirs}
        source = "state dict of AllenNLP"
        by_name = variables_of(arrays, stored_allennlp.ROWS, source, outer)
        tensors = Tensors(source, [], by_name)
        values = StoredWeights(bilm.options, None, [tensors]).values(bilm.padding)
        variables = bilm.stored_variables()
        new = {id(variables[name].value): torch.as_tensor(value) for name, value in values}

        # The mixes.
        for k, mix in enumerate(self._mixes):
            gamma = f"{prefix}scalar_mix_{k}.gamma"
            numbers = range(self._elmo_lstm.num_layers)
            weights = [f"{prefix}scalar_mix_{k}.scalar_parameters.{j}" for j in numbers]
            if all(name in state_dict for name in (gamma, *weights)):
                layers = torch.cat([state_dict.pop(name).reshape(1) for name in weights])
                new[id(mix.weights_before_softmax.value)] = layers
                new[id(mix.gamma.value)] = state_dict.pop(gamma).reshape(())

        # Keras registers a parameter in its layer and in the layers around it.
        for name, parameter in self.named_parameters(remove_duplicate=False):
            if id(parameter) in new:
                state_dict[prefix + name] = new[id(parameter)]

    def forward(self, inputs: torch.Tensor, word_inputs: object = None) -> dict[str, Any]:
        """Embed the ids (B, ..., T, 50) of `batch_to_ids`. Return `elmo_representations`, tensors
        float (B, ..., T, 2 P), zero at padding, and `mask`, boolean (B, ..., T); T + 2 with marks.
        Raises: DataError for other inputs."""
        lead = inputs.shape[:-2]  # B, ...
        result = self._elmo_lstm(inputs.reshape(math.prod(lead), *inputs.shape[-2:]))
        layers, mask = torch.stack(result["activations"], dim=1), result["mask"]
        kept = mask if self._keep_sentence_boundaries else without_marks(mask)
        representations = []
        for mix in self._mixes:
            vectors = mix(layers, mask)
            if not self._keep_sentence_boundaries:
                vectors = vectors[:, 1:-1]
            vectors = self._dropout(torch.where(kept[..., None], vectors, 0.0))
            representations.append(vectors.reshape(*lead, *vectors.shape[-2:]))
        return {
            "elmo_representations": representations,
            "mask": kept.reshape(*lead, kept.shape[-1]),
        }


class ElmoEmbedder:
    """Vectors of all layers as NumPy arrays, as `allennlp.commands.elmo.ElmoEmbedder`.

    Args:
        options_file, weight_file: the model; by default AllenNLP's, which is downloaded.
    Raises: OptionsError, WeightsError.

    Example:
        layers = ElmoEmbedder("options.json", "weights.hdf5").embed_sentence(["She", "rose", "."])
    """

    def __init__(
        self,
        options_file: str | Path | StoredModel = DEFAULT_MODEL,
        weight_file: str | Path | None = None,
        cuda_device: int = -1,
    ):
        self.embedder = Embedder(options_file, weight_file)
        self.cuda_device = cuda_device

    def embed_sentence(self, sentence: Sequence[str]) -> np.ndarray:
        """Return the layers of a sentence, float32 (layers + 1, T, 2 P)."""
        return self.embedder.embed_sentence(sentence)

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Return the layers of each sentence."""
        return self.embedder.embed_batch(batch)

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = 64
    ) -> Iterator[np.ndarray]:
        """Yield the layers of each sentence; `batch_size` is not needed."""
        return self.embedder.embed_sentences(sentences)

    def embed_file(
        self,
        input_file: Iterable[str],
        output_file_path: str | Path,
        output_format: str = "all",
        batch_size: int = 64,
        forget_sentences: bool = False,
    ) -> None:
        """Write the vectors of lines with one sentence each, blanks between the words, to HDF5: a
        float32 dataset per sentence, named 0, 1, ..., and, unless `forget_sentences`,
        `sentence_to_index`, a JSON object from sentences to these names. `output_format`: layers to
        store: all, top or average. Raises: DataError for a blank line; OptionsError; OSError."""
        lines = [line.strip() for line in input_file]
        if "" in lines:
            raise DataError(f"line {lines.index('') + 1}: blank, expected a sentence")
        embedded = self.embedder.embed_sentences(map(str.split, lines), output_format)
        with replacing(output_file_path) as temporary, NewHDF5(temporary) as file:
            for k, vectors in enumerate(embedded):
                file[str(k)] = vectors
                file.check()
            if not forget_sentences:
                index = {line: str(k) for k, line in enumerate(lines)}
                file["sentence_to_index"] = [json.dumps(index)]

    def batch_to_embeddings(
        self, batch: Sequence[Sequence[str]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the layers float (B, layers + 1, T, 2 P), 0 at padding, and the mask (B, T)."""
        embedded = self.embedder.embed_batch(batch)
        lengths = torch.tensor([vectors.shape[1] for vectors in embedded], dtype=torch.int64)
        n_steps = max(lengths.tolist(), default=0)
        layers = torch.zeros((len(embedded), self.embedder.n_layers, n_steps, self.embedder.dim))
        for row, vectors in zip(layers, embedded, strict=True):
            row[:, : vectors.shape[1]] = torch.as_tensor(vectors)
        return layers, torch.arange(n_steps) < lengths[:, None]
