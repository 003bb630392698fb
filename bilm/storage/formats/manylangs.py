"""ELMoForManyLangs: PyTorch state dicts, lexicons of words and code points, JSON.

Its graph is bilm's with another spelling. Two things differ in the stored numbers: a highway's gate
passes the input, where bilm's passes the transform, so the gate's weights are negated; and the
forget bias includes the 1 that bilm adds. See Che et al. 2018, Towards Better UD Parsing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

from bilm import schema
from bilm.errors import OptionsError, WeightsError
from bilm.lexicon_options import (
    CHARACTER_MARKS,
    WORD_MARKS,
    LexiconEncoderOptions,
    TableOptions,
)
from bilm.options import LstmOptions, ModelOptions
from bilm.rules import (
    ACTIVATION,
    CLIP,
    DIM_OR_NONE,
    FILTERS,
    LAYERS,
    LAYERS_OR_NONE,
    SIZE,
    TEXT,
    WORD_LENGTH,
)
from bilm.schema import Checked, key, unexpected
from bilm.storage.formats.lexicon import read_lexicon
from bilm.storage.formats.manylangs_tensors import CHARACTERS, WORDS, ManyLangsTensors
from bilm.storage.formats.state_dict import StateDict

NAME = "ELMoForManyLangs"
HAS_SOFTMAX = False
EXPECTS = "words as treebanks of Universal Dependencies have them, their case kept"
CONFIG, ENCODER, EMBEDDER = "config.json", "encoder.pkl", "token_embedder.pkl"
PAIR = CONFIG, ENCODER
LEXICONS = {"words": "word.dic", "characters": "char.dic"}
MAX_JSON_FILES, MAX_JSON_DEPTH = 50, 4
# The two published configurations, which are the same, and which no model brings along.
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
    """The LSTMs, in the words of a model's configuration; a clip of 0 is none."""

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
            raise unexpected("dim", self.dim, "another width than projection_dim")

    def to_bilm(self) -> LstmOptions:
        """Return the same in bilm's words."""
        clips = self.cell_clip or None, self.proj_clip or None
        return LstmOptions(self.dim, self.projection_dim, self.n_layers, *clips, True)


@dataclass(frozen=True)
class TokenEmbedder(Checked):
    """The token encoder; a width of 0 leaves words or characters out."""

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
            raise OptionsError("word_dim and char_dim are 0, expected one of them to be more")


@dataclass(frozen=True)
class Configuration(Checked):
    """What a model's configuration says of its shape."""

    encoder: Encoder = key(Encoder)
    token_embedder: TokenEmbedder = key(TokenEmbedder)


def find(paths: list[PurePath], where: Path) -> dict[str, PurePath] | None:
    """Return the files of a model, at the top or in one folder inside; None if there are none.

    Raises: WeightsError if there are models in several folders.
    """
    there = set(paths)
    homes = [p.parent for p in paths if p.name == ENCODER and len(p.parts) <= 2]
    homes = [h for h in homes if {h / CONFIG, h / EMBEDDER} <= there]
    homes = [h for h in homes if not h.parts] or homes
    if not homes:
        return None
    if len(homes) > 1:
        listed = ", ".join(sorted(home.as_posix() for home in homes))
        raise WeightsError(f"{where}: found {NAME} models in {listed}; expected one")
    home = homes[0]
    names = [CONFIG, ENCODER, EMBEDDER, *LEXICONS.values()]
    found = {name: home / name for name in names if home / name in there}
    inside = [p.relative_to(home) for p in paths if p.is_relative_to(home) and p.suffix == ".json"]
    inside = [p for p in inside if len(p.parts) <= MAX_JSON_DEPTH][:MAX_JSON_FILES]
    return found | {p.as_posix(): home / p for p in inside}


def pair(options_file: Path, weight_file: Path) -> tuple[Path, Path]:
    """Return the two files themselves."""
    return options_file, weight_file


def owns(weight_file: Path) -> bool:
    """Return whether the name is that of one of the format's two files of weights."""
    return weight_file.name in (ENCODER, EMBEDDER)


def files(options_file: Path, weight_file: Path) -> list[Path]:
    """Return the files that are there."""
    home = weight_file.parent
    configuration = _configuration_file(options_file)
    found = [options_file, *(home / name for name in (ENCODER, EMBEDDER, *LEXICONS.values()))]
    found += [configuration] if isinstance(configuration, Path) else []
    return [path for path in dict.fromkeys(found) if path.exists()]


def read_options(options_file: Path, weight_file: Path) -> ModelOptions:
    """Read the configuration and the lexicons. Raises: OptionsError, DataError, WeightsError."""
    home, source = weight_file.parent, _configuration_file(options_file)
    try:
        values = schema.read_object(source) if isinstance(source, Path) else PUBLISHED_CONTENT
        found = schema.read(Configuration, values, strict=False)
        lstm, embedder = found.encoder.to_bilm(), found.token_embedder
    except OptionsError as error:
        prefix = "" if str(error).startswith(str(source)) else f"{source}: "
        raise OptionsError(f"{prefix}{error}") from None
    shapes = StateDict(home / EMBEDDER).shapes
    tables = {
        "words": _table(home, "words", embedder.word_dim, shapes.get(WORDS)),
        "characters": _table(home, "characters", embedder.char_dim, shapes.get(CHARACTERS)),
    }
    try:
        encoder = LexiconEncoderOptions(
            embedder.max_characters_per_token,
            **tables,
            activation=embedder.activation,
            filters=embedder.filters,
            n_highway=embedder.n_highway,
        )
    except OptionsError as error:
        raise OptionsError(f"{source}: token_embedder.{error}") from None
    return ModelOptions(lstm, bidirectional=True, lexicon_encoder=encoder)


def open_tensors(options_file: Path, weight_file: Path, options: ModelOptions) -> ManyLangsTensors:
    """Open the two state dicts. Raises: WeightsError."""
    home = weight_file.parent
    return ManyLangsTensors(StateDict(home / EMBEDDER), StateDict(home / ENCODER), options)


def _table(home: Path, name: str, dim: int, shape: Any) -> TableOptions | None:
    """Return a table and its lexicon; None where the configuration has no width for it."""
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

    `config.json` says where it was when the model was trained. Nothing outside the model's folder
    is opened: what it names is looked for below the folder, then by its last part there.

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
        f"{options_file}: config_path: found {name[-100:]!r}, but no {path.name or 'file'!r} in "
        f"the folder, and it is none of the published {', '.join(PUBLISHED)}; put it there"
    )
