"""Load time, memory and speed of a full-size ELMoForManyLangs model with random weights.

Example: python benchmarks/manylangs.py FOLDER

Writes a model in each of PyTorch's two file formats, with the published configuration, 100,000
words and 3,000 characters, and measures each in a separate process: the time to create an
`ElmoEmbedder`, its peak memory above that after TensorFlow's import, and words per second with an
empty and a filled cache, by wall time and CPU time.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from common import CLASSICS

ROOT = Path(__file__).resolve().parent.parent
N_WORDS, N_CHARACTERS, N_SENTENCES = 100_000, 3_000, 300


def shapes(config: dict) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return the shapes of all tensors, by file name and tensor name."""
    encoder, embedder = config["encoder"], config["token_embedder"]
    dim, width = encoder["dim"], encoder["projection_dim"]
    word_dim, char_dim = embedder["word_dim"], embedder["char_dim"]
    found = {
        "word_emb_layer.embedding.weight": (N_WORDS, word_dim),
        "char_emb_layer.embedding.weight": (N_CHARACTERS, char_dim),
    }
    n_filters = sum(n for _, n in embedder["filters"])
    for i, (n_places, n) in enumerate(embedder["filters"]):
        found[f"convolutions.{i}.weight"] = n, char_dim, n_places
        found[f"convolutions.{i}.bias"] = (n,)
    for i in range(embedder["n_highway"]):
        found[f"highways._layers.{i}.weight"] = 2 * n_filters, n_filters
        found[f"highways._layers.{i}.bias"] = (2 * n_filters,)
    found |= {"projection.weight": (width, word_dim + n_filters), "projection.bias": (width,)}
    lstms = {}
    for layer in range(encoder["n_layers"]):
        for direction in ("forward", "backward"):
            stored = f"{direction}_layer_{layer}"
            lstms[f"{stored}.input_linearity.weight"] = 4 * dim, width
            lstms[f"{stored}.state_linearity.weight"] = 4 * dim, width
            lstms[f"{stored}.state_linearity.bias"] = (4 * dim,)
            lstms[f"{stored}.state_projection.weight"] = width, dim
    return {"token_embedder.pkl": found, "encoder.pkl": lstms}


def write(folder: Path, packed: bool, seed: int = 0) -> Path:
    """Write a model, in the format since PyTorch 1.6 if `packed`; return the folder."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "helpers")]
    from manylangs_files import MARKS, legacy, zipped

    from bilm.storage.formats.manylangs import PUBLISHED, PUBLISHED_CONTENT

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for name, tensors in shapes(PUBLISHED_CONTENT).items():
        drawn = {n: rng.standard_normal(shape, "f4") * 0.05 for n, shape in tensors.items()}
        (folder / name).write_bytes(zipped(drawn) if packed else legacy(drawn))
    (folder / "config.json").write_text(json.dumps({"config_path": f"configs/{PUBLISHED[0]}"}))
    words = (CLASSICS / "vocab.txt").read_text(encoding="utf-8").split()
    characters = [chr(i) for i in range(0x21, 0x21 + N_CHARACTERS - len(MARKS))]
    for name, keys in {"word.dic": words, "char.dic": characters}.items():
        lines = [f"{key}\t{i}\n" for i, key in enumerate(dict.fromkeys([*MARKS, *keys]))]
        (folder / name).write_text("".join(lines), encoding="utf-8", newline="\n")
    return folder


def measure(folder: Path) -> None:
    """Print load time, memory and speed of a model as JSON."""
    import tensorflow as tf

    from bilm import ElmoEmbedder

    before = memory("VmRSS")
    start = clocks()
    embedder = ElmoEmbedder(folder)
    load = clocks() - start
    # getrusage would include the memory of the parent process.
    peak = memory("VmHWM")
    n_bytes = sum(p.stat().st_size for p in folder.glob("*.pkl"))
    with open(CLASSICS / "dev.txt", encoding="utf-8") as file:
        sentences = [line.split() for line, _ in zip(file, range(N_SENTENCES), strict=False)]
    rates = []
    for _ in range(2):
        start = clocks()
        for _ in embedder.embed_sentences(sentences, layers="top"):
            pass
        rates.append(sum(map(len, sentences)) / (clocks() - start))
    found = {
        "model": folder.name,
        "file_mb": n_bytes / 1e6,
        "load_s": load[0],
        "load_processor_s": load[1],
        "peak_over_import_mb": (peak - before) / 1e6,
        "peak_of_file": (peak - before) / n_bytes,
        "words_per_s": [round(rate[0]) for rate in rates],
        "words_per_processor_s": [round(rate[1]) for rate in rates],
        "tensorflow": tf.__version__,
    }
    print(json.dumps(found))


def clocks() -> np.ndarray:
    """Return wall time and CPU time in seconds."""
    return np.array([time.perf_counter(), time.process_time()])


def memory(name: str) -> int:
    """Return the current (VmRSS) or maximum (VmHWM) resident size of the process in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) << 10


if __name__ == "__main__":
    if sys.argv[1] == "--measure":
        measure(Path(sys.argv[2]))
    else:
        for name, packed in (("legacy", False), ("zip", True)):
            model = Path(sys.argv[1]) / name
            if not model.exists():
                write(model, packed)
            subprocess.run([sys.executable, __file__, "--measure", model], check=True)
