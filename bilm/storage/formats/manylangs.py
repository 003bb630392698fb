"""ELMoForManyLangs: PyTorch state dicts, lexicons of words and code points, JSON.

Its graph is that of bilm with other names. The stored numbers differ in two ways: a highway's gate
passes the input instead of the transform, so its weights are negated; and the forget bias includes
the 1 that bilm adds. See Che et al. 2018, Towards Better UD Parsing.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from bilm.errors import DataError, OptionsError, WeightsError
from bilm.options import schema
from bilm.options.model_options import (
    CHARACTER_MARKS,
    DIRECTIONS,
    WORD_MARKS,
    LexiconEncoderOptions,
    LstmOptions,
    ModelOptions,
    TableOptions,
)
from bilm.options.schema import (
    ACTIVATION,
    CLIP,
    DIM_OR_NONE,
    FILTERS,
    LAYERS,
    LAYERS_OR_NONE,
    SIZE,
    TEXT,
    WORD_LENGTH,
    Checked,
    key,
    unexpected,
)
from bilm.storage.formats.base import Format, LazyTensor
from bilm.storage.formats.pytorch import StateDict
from bilm.storage.hdf5 import Held
from bilm.support.model_files import CONFIG, EMBEDDER, ENCODER, LEXICONS, MAX_JSON_DEPTH

MAX_JSON_FILES = 50
MAX_LEXICON_BYTES = 256 << 20  # a million words take about 15 MB
IDEOGRAPHIC_SPACE = "\u3000"  # represented by an empty key, since keys are stripped
LEXICON_ID = re.compile(r"[0-9]{1,10}")
WORDS, CHARACTERS = "word_emb_layer.embedding.weight", "char_emb_layer.embedding.weight"
# stored positions of the gates i, j, f, o of bilm; the stored order is i, f, g (= j), o
GATES = (0, 2, 1, 3)
Convert = Callable[[np.ndarray], np.ndarray]
# The two published configurations are identical; published models do not include them.
PUBLISHED = ("cnn_50_100_512_4096_sample.json", "cnn_0_100_512_4096_sample.json")
PUBLISHED_CONTENT = {
    "encoder": {
        "name": "elmo",
        "projection_dim": 512,
        "cell_clip": 3,
        "proj_clip": 3,
        "dim": 4096,
        "n_layers": 2,
    },
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
}


@dataclass(frozen=True)
class Encoder(Checked):
    """The LSTMs in a model's configuration; a clip of 0 means no clipping."""

    name: str = key(TEXT)
    dim: int = key(SIZE)
    projection_dim: int = key(SIZE)
    n_layers: int = key(LAYERS)
    cell_clip: float | None = key(CLIP, None)
    proj_clip: float | None = key(CLIP, None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name.lower() != "elmo":
            raise unexpected("name", self.name, '"elmo"; other encoders are not supported')
        if self.dim == self.projection_dim:
            raise unexpected("dim", self.dim, "a width different from projection_dim")

    def to_bilm(self) -> LstmOptions:
        """Return the options of bilm."""
        clips = self.cell_clip or None, self.proj_clip or None
        return LstmOptions(self.dim, self.projection_dim, self.n_layers, *clips, True)


@dataclass(frozen=True)
class TokenEmbedder(Checked):
    """The token encoder in a model's configuration; a width of 0 omits words or characters."""

    name: str = key(TEXT)
    word_dim: int = key(DIM_OR_NONE)
    char_dim: int = key(DIM_OR_NONE)
    max_characters_per_token: int = key(WORD_LENGTH)
    activation: str = key(ACTIVATION, "relu")
    filters: tuple[tuple[int, int], ...] | None = key(FILTERS, None)
    n_highway: int = key(LAYERS_OR_NONE, 0, null=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name.lower() != "cnn":
            raise unexpected("name", self.name, '"cnn"; other token embedders are not supported')
        if not self.word_dim and not self.char_dim:
            raise OptionsError("word_dim and char_dim are 0, expected one to be positive")


@dataclass(frozen=True)
class Configuration(Checked):
    """The parts of a model's configuration that determine its shape."""

    encoder: Encoder = key(Encoder)
    token_embedder: TokenEmbedder = key(TokenEmbedder)


class ManyLangs(Format):
    """`config.json` and the two state dicts beside it; the weight file is the encoder."""

    name = "ELMoForManyLangs"
    trainable = False
    expects = "words tokenized like the treebanks of Universal Dependencies, in their original case"
    copies = (CONFIG, ENCODER)

    @classmethod
    def find(cls, paths: list[PurePath], where: Path) -> dict[str, PurePath] | None:
        """Choose the files of a model, at the top or in one folder inside.

        Raises: WeightsError if there are models in several folders.
        """
        available = set(paths)
        homes = [p.parent for p in paths if p.name == ENCODER and len(p.parts) <= 2]
        homes = [h for h in homes if {h / CONFIG, h / EMBEDDER} <= available]
        homes = [h for h in homes if not h.parts] or homes
        if not homes:
            return None
        if len(homes) > 1:
            listed = ", ".join(sorted(home.as_posix() for home in homes))
            raise WeightsError(f"{where}: found {cls.name} models in {listed}; expected one")
        home = homes[0]
        names = [CONFIG, ENCODER, EMBEDDER, *LEXICONS.values()]
        found = {name: home / name for name in names if home / name in available}
        below = [p for p in paths if p.is_relative_to(home) and p.suffix == ".json"]
        inside = [p.relative_to(home) for p in below]
        inside = [p for p in inside if len(p.parts) <= MAX_JSON_DEPTH][:MAX_JSON_FILES]
        return found | {p.as_posix(): home / p for p in inside}

    @classmethod
    def owns(cls, weight_file: Path) -> bool:
        """Return whether the name is that of one of the two state dicts."""
        return weight_file.name in (ENCODER, EMBEDDER)

    def files(self) -> list[Path]:
        """Return the options, the state dicts, the lexicons and the configuration."""
        home, configuration = self.weight_file.parent, _configuration_file(self.options_file)
        names = ENCODER, EMBEDDER, *LEXICONS.values()
        found = [self.options_file, *(home / name for name in names)]
        return [p for p in [*found, configuration] if isinstance(p, Path) and p.exists()]

    def options(self) -> ModelOptions:
        """Read configuration and lexicons. Raises: OptionsError, DataError, WeightsError."""
        home, source = self.weight_file.parent, _configuration_file(self.options_file)
        try:
            values = schema.read_object(source) if isinstance(source, Path) else PUBLISHED_CONTENT
            found = schema.read(Configuration, values, strict=False)
            lstm, embedder = found.encoder.to_bilm(), found.token_embedder
        except OptionsError as error:
            prefix = "" if str(error).startswith(str(source)) else f"{source}: "
            raise OptionsError(f"{prefix}{error}") from None
        shapes = self._embedder.shapes
        try:
            encoder = LexiconEncoderOptions(
                embedder.max_characters_per_token,
                words=_table(home, "words", embedder.word_dim, shapes.get(WORDS)),
                characters=_table(home, "characters", embedder.char_dim, shapes.get(CHARACTERS)),
                activation=embedder.activation,
                filters=embedder.filters,
                n_highway=embedder.n_highway,
            )
        except OptionsError as error:
            raise OptionsError(f"{source}: token_embedder.{error}") from None
        return ModelOptions(lstm, bidirectional=True, lexicon_encoder=encoder)

    def tensors(self, options: ModelOptions) -> ManyLangsTensors:
        """Open the two state dicts. Raises: WeightsError."""
        return ManyLangsTensors(
            self._embedder, StateDict(self.weight_file.parent / ENCODER), options
        )

    @functools.cached_property
    def _embedder(self) -> StateDict:
        return StateDict(self.weight_file.parent / EMBEDDER)


def _table(home: Path, name: str, dim: int, shape: Any) -> TableOptions | None:
    """Return a table and its lexicon; None if its width in the configuration is 0."""
    if not dim:
        return None
    marks = WORD_MARKS if name == "words" else CHARACTER_MARKS
    if shape is None or len(shape) != 2 or not shape[0]:
        found = "missing" if shape is None else f"of shape {shape}"
        raise WeightsError(
            f"{home / EMBEDDER}: the table of {name} is {found}, expected (n, {dim})"
        )
    lexicon = read_lexicon(home / LEXICONS[name], shape[0], marks)
    return TableOptions(dim, shape[0], lexicon)


def _configuration_file(options_file: Path) -> Path | str:
    """Return the file of the model's configuration, or the name of a published one.

    `config.json` contains the path that the configuration had during training. No file outside the
    model's folder is opened: the path is tried below the folder, then its last part in the folder.

    Raises: OptionsError.
    """
    values = schema.read_object(options_file)
    name = values.get("config_path")
    if not isinstance(name, str) or "\0" in name or len(name) > 4096:
        raise OptionsError(f"{options_file}: {unexpected('config_path', name, 'a path')}")
    path = PurePosixPath(PureWindowsPath(name).as_posix() if "\\" in name else name)
    home = options_file.parent
    candidates = [home / path.name] if path.name else []
    is_inside = not path.is_absolute() and ".." not in path.parts
    if is_inside and not PureWindowsPath(name).anchor:
        candidates.insert(0, home / path)
    for candidate in candidates:
        if candidate.is_file() and candidate != options_file:
            return candidate
    if path.name in PUBLISHED:
        return path.name
    raise OptionsError(
        f"{options_file}: config_path: found {name[-100:]!r}, but {path.name or 'the file'!r} is "
        f"missing in the folder, and is not one of the published {', '.join(PUBLISHED)}; copy it "
        "to the folder"
    )


# --- lexicons ---


def read_lexicon(path: Path, n_rows: int, marks: Sequence[str]) -> dict[str, int]:
    """Read a lexicon: `key<TAB>id` per line, UTF-8; the last of several equal keys is used.

    Args:
        n_rows: number of rows of the table that the ids index.
        marks: required keys.
    Raises: DataError, naming the line, if the file cannot be used.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_LEXICON_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_LEXICON_BYTES:
        raise DataError(f"{path}: more than {MAX_LEXICON_BYTES:,} bytes, expected a lexicon")
    lexicon = {}
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    for number, line in enumerate(lines, 1):
        stored_key, tab, stored_id = line.rpartition(b"\t")
        where = f"{path}, line {number}"
        try:
            key = stored_key.decode().strip() or IDEOGRAPHIC_SPACE
            id_ = stored_id.decode().strip()
        except UnicodeDecodeError as error:
            raise DataError(f"{where}: not UTF-8") from error
        if not tab or not LEXICON_ID.fullmatch(id_):
            raise DataError(f"{where}: found {line[:40]!r}, expected a key, a tab and an id")
        if int(id_) >= n_rows:
            raise DataError(f"{where}: its id is {int(id_)}, but the table has {n_rows:,} rows")
        lexicon[key] = int(id_)
    missing = [mark for mark in marks if mark not in lexicon]
    if missing:
        raise DataError(f"{path}: {' '.join(missing)} missing, expected one per line")
    return lexicon


# --- tensors by bilm's names and in bilm's layout ---


class Row(NamedTuple):
    """One row of the table of names: a variable and the stored tensors that it is made of.

    Fields:
        variable: bilm's name.
        stored: the names in the state dict; two of them only for an LSTM's kernel.
        stored_shape: the shape of each.
        shape: shape of the variable.
        convert: turns the stored tensor into the variable's value; None for an LSTM's kernel.
    """

    variable: str
    stored: tuple[str, ...]
    stored_shape: tuple[int, ...]
    shape: tuple[int, ...]
    convert: Convert | None


def embedder_rows(options: ModelOptions) -> Iterator[Row]:
    """Yield the rows of the table of names for the token embedder of a model with these options."""
    encoder, width = options.lexicon_encoder, options.lstm.projection_dim
    assert encoder is not None  # every model of this format has one
    words, characters = encoder.words, encoder.characters

    def row(variable: str, stored: str, shape: tuple[int, ...]) -> Row:
        return Row(variable, (stored,), shape, shape, np.asarray)

    n = 0
    if words is not None:
        yield row("word_embed", WORDS, (words.n_rows, words.dim))
    if characters is not None:
        dim = characters.dim
        yield row("char_embed", CHARACTERS, (characters.n_rows, dim))
        for i, (n_places, n_filters) in enumerate(encoder.filters or ()):
            shapes = (n_filters, dim, n_places), (1, n_places, dim, n_filters)
            yield Row(f"CNN/W_cnn_{i}", (f"convolutions.{i}.weight",), *shapes, _convolution)
            yield row(f"CNN/b_cnn_{i}", f"convolutions.{i}.bias", (n_filters,))
            n += n_filters
        for i in range(encoder.n_highway):
            name, stored = f"CNN_high_{i}", f"highways._layers.{i}"
            for part, convert in (("transform", _transform), ("carry", _carry)):
                weight = f"{stored}.weight"
                yield Row(f"{name}/W_{part}", (weight,), (2 * n, n), (n, n), convert)
                yield Row(f"{name}/b_{part}", (f"{stored}.bias",), (2 * n,), (n,), convert)
    n += words.dim if words is not None else 0
    yield Row("CNN_proj/W_proj", ("projection.weight",), (width, n), (n, width), np.transpose)
    yield row("CNN_proj/b_proj", "projection.bias", (width,))


def encoder_rows(options: ModelOptions) -> Iterator[Row]:
    """Yield the rows of the table of names for the LSTMs of a model with these options."""
    dim, width = options.lstm.dim, options.lstm.projection_dim
    for k, direction in enumerate(DIRECTIONS):
        for i in range(options.lstm.n_layers):
            name, layer = f"RNN_{k}/RNN/MultiRNNCell/Cell{i}/LSTMCell", f"{direction}_layer_{i}"
            kernels = f"{layer}.input_linearity.weight", f"{layer}.state_linearity.weight"
            yield Row(f"{name}/W_0", kernels, (4 * dim, width), (2 * width, 4 * dim), None)
            bias, projection = f"{layer}.state_linearity.bias", f"{layer}.state_projection.weight"
            yield Row(f"{name}/B", (bias,), (4 * dim,), (4 * dim,), _bias)
            shapes = (width, dim), (dim, width)
            yield Row(f"{name}/W_P_0", (projection,), *shapes, np.transpose)


class ManyLangsTensors:
    """See `bilm.storage.formats.base.Tensors`. The unused tensors of each file cause one warning.

    Args:
        embedder, encoder: the two state dicts.
        options: determine the tensors that are required.
    Raises: WeightsError for a tensor that is missing or has another shape.
    """

    def __init__(self, embedder: StateDict, encoder: StateDict, options: ModelOptions):
        self.paths: tuple[Path, ...] = (encoder.path, embedder.path)
        self.source = str(encoder.path.parent)
        self._found: dict[str, LazyTensor] = {}
        for source, rows in (embedder, embedder_rows(options)), (encoder, encoder_rows(options)):
            unused = set(source.shapes)
            for row in rows:
                self._found[row.variable] = _lazy(source, row)
                unused.difference_update(row.stored)
            if unused:
                shown = re.sub(r"[^ -~]", "?", ", ".join(sorted(unused)[:8]))[:300]
                logging.warning("%s: %d tensors are not used: %s", source.path, len(unused), shown)
        self.names = set(self._found)
        shapes = [*embedder.shapes.values(), *encoder.shapes.values()]
        self._held = Held(len(shapes), sum(map(math.prod, shapes)))

    def held(self) -> Held:
        """Count the tensors of the files and their numbers."""
        return self._held

    @contextmanager
    def opened(self) -> Iterator[Callable[[str], LazyTensor]]:
        """Yield the function that returns a tensor; each one opens its file when it is read."""
        yield self._found.__getitem__


def _lazy(source: StateDict, row: Row) -> LazyTensor:
    """Return a variable of a state dict. Raises: WeightsError."""
    for name in row.stored:
        found = source.shapes.get(name)
        if found != row.stored_shape:
            what = "is missing" if found is None else f"has shape {found}"
            raise WeightsError(
                f"{source.path}: {name} {what}, the configuration requires shape {row.stored_shape}"
            )
    return LazyTensor(row.shape, source.dtypes[row.stored[0]], partial(_value, source, row))


def _value(source: StateDict, row: Row) -> np.ndarray:
    if row.convert is None:
        return _kernel(source, row)
    return row.convert(source.read(row.stored[0]))


def _convolution(value: np.ndarray) -> np.ndarray:
    return value.transpose(2, 1, 0)[None]


def _transform(value: np.ndarray) -> np.ndarray:
    return value[: len(value) // 2].T


def _carry(value: np.ndarray) -> np.ndarray:
    return -value[len(value) // 2 :].T


def _kernel(source: StateDict, row: Row) -> np.ndarray:
    """Return the input weights stacked above the recurrent weights; the stored gates i, f, g, o are
    reordered to i, j (= g), f, o.

    The kernel is filled in place: it is the largest tensor and determines the peak of memory.
    """
    n_columns, width = row.stored_shape
    dim = n_columns // 4
    kernel: np.ndarray = np.empty(row.shape, np.float32)
    with np.errstate(over="ignore"):  # an infinite value is refused later
        for k, name in enumerate(row.stored):
            stored = source.read(name)
            for place, gate in enumerate(GATES):
                columns = slice(place * dim, (place + 1) * dim)
                kernel[k * width : (k + 1) * width, columns] = stored[gate * dim :][:dim].T
    return kernel


def _bias(value: np.ndarray) -> np.ndarray:
    i, f, g, o = np.split(value, 4)
    return np.concatenate([i, g, f - 1, o])
