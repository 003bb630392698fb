"""ELMoForManyLangs (Che et al. 2018, Towards Better UD Parsing): PyTorch state dicts, lexicons of
words and code points, JSON.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any, TypeVar

from bilm.data.text import placed_lines
from bilm.errors import DataError, OptionsError
from bilm.options import schema
from bilm.options.model_options import (
    CHARACTER_MARKS,
    WORD_MARKS,
    LexiconEncoderOptions,
    LstmOptions,
    ModelOptions,
    TableOptions,
)
from bilm.options.schema import Checked, unexpected
from bilm.storage.formats.base import StoredModel, paths_inside
from bilm.storage.formats.pytorch import StateDict
from bilm.storage.formats.rows import StoredRow, encoder_rows, lstm_rows, variables_of
from bilm.storage.stored_tensors import Tensors
from bilm.support.model_files import CONFIG

T = TypeVar("T", bound=Checked)
ENCODER, EMBEDDER = "encoder.pkl", "token_embedder.pkl"
LEXICONS = {"words": "word.dic", "characters": "char.dic"}
TABLES = ("words", "word", WORD_MARKS), ("characters", "char", CHARACTER_MARKS)
IDEOGRAPHIC_SPACE = "\u3000"  # represented by an empty key, since keys are stripped
LEXICON_ID = re.compile(r"[0-9]{1,10}")
EMBEDDER_ROWS = (
    StoredRow("word_embed", ("word_emb_layer.embedding.weight",)),
    StoredRow("char_embed", ("char_emb_layer.embedding.weight",)),
    *encoder_rows("convolutions.", "highways._layers.", "projection"),
)
# The two published configurations are identical; published models do not include them.
PUBLISHED = ("cnn_50_100_512_4096_sample.json", "cnn_0_100_512_4096_sample.json")
PUBLISHED_FILE = Path(__file__).with_name("manylangs_published.json")


class ManyLangs(StoredModel):
    """`config.json` and the two state dicts beside it; the weight file is the encoder."""

    format = "ELMoForManyLangs"
    weight_names = (ENCODER, EMBEDDER)
    required = (CONFIG, ENCODER, EMBEDDER)
    # One of the JSON files is the configuration that `CONFIG` names.
    companions = (EMBEDDER, *LEXICONS.values(), "*.json")
    trainable = has_softmax = False
    expects = "words tokenized like the treebanks of Universal Dependencies, in their original case"

    def files(self) -> list[Path]:
        names = (ENCODER, EMBEDDER, *LEXICONS.values())
        beside = [path for path in map(self.weight_file.with_name, names) if path.exists()]
        configuration = _configuration_file(self.options_file)
        own = [] if configuration == PUBLISHED_FILE else [configuration]
        return [self.options_file, *beside, *own]

    def read_options(self) -> ModelOptions:
        source = _configuration_file(self.options_file)
        values = schema.read_object(source)
        try:
            encoder = {**_section(values, "encoder", "elmo"), "use_skip_connections": True}
            for key in ("cell_clip", "proj_clip"):
                encoder[key] = encoder.get(key) or None  # 0 is no clipping
            lstm = _read(LstmOptions, "encoder", encoder)
            if lstm.dim == lstm.projection_dim:
                raise unexpected("encoder.dim", lstm.dim, "a width different from projection_dim")
            lexicons = self._lexicon_options(_section(values, "token_embedder", "cnn"))
        except OptionsError as error:
            raise OptionsError(f"{source}: {error}") from None
        return ModelOptions(lstm, bidirectional=True, lexicon_encoder=lexicons)

    def _lexicon_options(self, section: Mapping[str, Any]) -> LexiconEncoderOptions:
        values = {key: value for key, value in section.items() if value is not None}
        for name, kind, marks in TABLES:
            values.pop(name, None)
            dim = section.get(f"{kind}_dim")
            if dim:  # 0 if there is no table
                n_rows = self.tensors.axis_lengths(f"{kind}_embed")[name]
                lexicon = read_lexicon(self.weight_file.with_name(LEXICONS[name]), n_rows, marks)
                values[name] = TableOptions(dim, n_rows, lexicon)
        return _read(LexiconEncoderOptions, "token_embedder", values)

    @functools.cached_property
    def tensors(self) -> Tensors:
        home = self.weight_file.parent
        embedder, encoder = home / EMBEDDER, home / ENCODER
        by_name = variables_of(StateDict(embedder), EMBEDDER_ROWS, embedder)
        by_name |= variables_of(StateDict(encoder), lstm_rows(), encoder)
        return Tensors(home, [embedder, encoder], by_name)


def _section(values: Mapping[str, Any], name: str, kind: str) -> dict[str, Any]:
    """Return a part of the configuration, of the only kind that is supported."""
    section = values.get(name)
    actual = section.get("name") if isinstance(section, dict) else section
    if not isinstance(section, dict) or str(actual).lower() != kind:
        raise unexpected(f"{name}.name", actual, f'"{kind}", the only kind')
    return section


def _read(cls: type[T], section: str, values: Mapping[str, Any]) -> T:
    """Read the options that a section contains, without its other keys."""
    try:
        return cls.from_dict(values).replace(other={})
    except OptionsError as error:
        raise OptionsError(f"{section}.{error}") from None


def _configuration_file(options_file: Path) -> Path:
    """Return the file of the model's configuration, or of the published one."""
    # This path is that of training. No file outside the model's folder is opened.
    name = schema.read_object(options_file).get("config_path")
    if not isinstance(name, str) or "\0" in name or len(name) > 4096:
        raise OptionsError(f"{options_file}: {unexpected('config_path', name, 'a path')}")
    for candidate in paths_inside(options_file.parent, name):
        if candidate.is_file() and candidate != options_file:
            return candidate
    last = PureWindowsPath(name).name
    if last in PUBLISHED:
        return PUBLISHED_FILE
    raise OptionsError(
        f"{options_file}: config_path: found {name[-100:]!r}, but {last or 'the file'!r} is "
        f"missing in the folder, and is not one of the published {', '.join(PUBLISHED)}; copy it "
        "there"
    )


# --- lexicons ---


def read_lexicon(path: Path, n_rows: int, marks: Sequence[str]) -> dict[str, int]:
    """Read a lexicon: `key<TAB>id` per line, UTF-8; the last of several equal keys is used. Raises:
    DataError, also if it has no entry for a row of the table that the ids index, or for a mark."""
    lexicon = {}
    number = 0
    for number, _, _, line in placed_lines(path, "error"):
        key, tab, id_ = line.rpartition("\t")
        where = f"{path}, line {number}"
        if not tab or not LEXICON_ID.fullmatch(id_.strip()):
            raise DataError(f"{where}: found {line[:40]!r}, expected a key, a tab and an id")
        if int(id_) >= n_rows:
            raise DataError(f"{where}: its id is {int(id_)}, but the table has {n_rows:,} rows")
        lexicon[key.strip() or IDEOGRAPHIC_SPACE] = int(id_)
    if number < n_rows:
        raise DataError(
            f"{path}: has {number:,} entries, but the table has {n_rows:,} rows; use the lexicon "
            "of this model"
        )
    missing = [mark for mark in marks if mark not in lexicon]
    if missing:
        raise DataError(f"{path}: {' '.join(missing)} missing, expected one per line")
    return lexicon
