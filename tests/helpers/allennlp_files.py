"""Small AllenNLP models, written without PyTorch."""

import json
from pathlib import Path

import numpy as np
from manylangs_files import legacy, lstm_shapes, zipped
from options_examples import CHAR_CNN, LSTM

DIM, WIDTH, FILTERS = 6, 4, [[1, 2], [2, 3]]
EMBEDDING_DIM, N_CHARACTERS = 3, 262
MODULE = "text_field_embedder.token_embedder_elmo._elmo"
CHARACTERS = {"embedding": {"dim": EMBEDDING_DIM}, "filters": FILTERS, "n_characters": N_CHARACTERS}
OPTIONS = {
    "char_cnn": CHAR_CNN | CHARACTERS | {"max_characters_per_token": 50},
    "lstm": LSTM | {"dim": DIM, "n_layers": 1, "projection_dim": WIDTH},
}
ARGUMENTS = {"type": "elmo_token_embedder", "options_file": "/data/elmo/options.json"}
CONFIGURATION = {
    "model": {"text_field_embedder": {"token_embedders": {"elmo": ARGUMENTS}}},
    "trainer": {"num_epochs": 2},
}


def shapes() -> dict[str, tuple[int, ...]]:
    """Return the shapes of a biLM's tensors by name."""
    n = sum(number for _, number in FILTERS)
    token, layer = "_elmo_lstm._token_embedder.", "_elmo_lstm._elmo_lstm."
    found = {f"{token}_char_embedding_weights": (N_CHARACTERS, EMBEDDING_DIM)}
    for i, (width, number) in enumerate(FILTERS):
        found[f"{token}char_conv_{i}.weight"] = (number, EMBEDDING_DIM, width)
        found[f"{token}char_conv_{i}.bias"] = (number,)
    found[f"{token}_highways._layers.0.weight"] = (2 * n, n)
    found[f"{token}_highways._layers.0.bias"] = (2 * n,)
    found[f"{token}_projection.weight"], found[f"{token}_projection.bias"] = (WIDTH, n), (WIDTH,)
    return found | {f"{layer}{name}": shape for name, shape in lstm_shapes(DIM, WIDTH).items()}


def mixes(n: int = 1) -> dict[str, np.ndarray]:
    """Return the tensors of learned mixes by name."""
    found = {}
    for k in range(n):
        found[f"scalar_mix_{k}.gamma"] = np.array([1.5 + k], "f4")
        for j in range(2):
            found[f"scalar_mix_{k}.scalar_parameters.{j}"] = np.array([j + k / 2], "f4")
    return found


def tensors(module: str = MODULE, dtype: str = "f4", seed: int = 0) -> dict[str, np.ndarray]:
    """Return the state dict of a model whose ELMo is in a module ("" for the ELMo alone)."""
    rng = np.random.default_rng(seed)
    found = {name: rng.normal(0, 0.5, shape).astype(dtype) for name, shape in shapes().items()}
    prefix = f"{module}." if module else ""
    return {f"{prefix}{name}": value for name, value in (found | mixes()).items()}


def write_model(folder: Path, packed: bool = True, config: bool = True) -> Path:
    """Write a small model, in the format of PyTorch 1.6 if `packed`."""
    folder.mkdir(parents=True)
    content = tensors() | {"tag_projection_layer.weight": np.ones((2, 3), "f4")}
    (folder / "weights.th").write_bytes(zipped(content) if packed else legacy(content))
    if config:
        (folder / "config.json").write_text(json.dumps(CONFIGURATION))
    return folder
