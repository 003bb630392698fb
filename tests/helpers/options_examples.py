"""An `options.json` of the reference, and functions that change it."""

import json

CHAR_CNN = {
    "activation": "relu",
    "embedding": {"dim": 4},
    "filters": [[1, 4], [2, 5], [3, 6]],
    "max_characters_per_token": 12,
    "n_characters": 261,
    "n_highway": 1,
}
LSTM = {
    "cell_clip": 3,
    "dim": 10,
    "n_layers": 2,
    "proj_clip": 3,
    "projection_dim": 6,
    "use_skip_connections": True,
}
RUN = {
    "bidirectional": True,
    "char_cnn": CHAR_CNN,
    "dropout": 0.1,
    "lstm": LSTM,
    "all_clip_norm_val": 10.0,
    "n_epochs": 10,
    "n_train_tokens": 768648884,
    "batch_size": 128,
    "n_tokens_vocab": 793471,
    "unroll_steps": 20,
    "n_negative_samples_batch": 8192,
}


def edited(dotted, value=None, remove=False):
    """Return a copy of RUN with one key, given by its dotted name, changed or removed."""
    values = json.loads(json.dumps(RUN))
    *parents, last = dotted.split(".")
    target = values
    for parent in parents:
        target = target[parent]
    if remove:
        del target[last]
    else:
        target[last] = value
    return values


def dotted_names(values, prefix=""):
    for name, value in values.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from dotted_names(value, f"{prefix}{name}.")


def stored(tmp_path, values):
    path = tmp_path / "options.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return path
