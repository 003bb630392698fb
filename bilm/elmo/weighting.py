"""`weight_layers` of bilm-tf: named learned mixes of a biLM's layers."""

from __future__ import annotations

from collections.abc import Mapping

from keras import ops

from bilm.errors import DataError
from bilm.layers.scalar_mix import ScalarMix, normalized

_mixes: dict[str, ScalarMix] = {}


def weight_layers(
    name: str,
    bilm_ops: Mapping[str, object],
    l2_coef: float | None = None,
    use_top_only: bool = False,
    do_layer_norm: bool = False,
    reuse: bool = False,
) -> dict[str, object]:
    """Return the weighted sum of a biLM's layers, like the function of this name in bilm-tf.

    This module keeps a Keras layer with the weights under `name`; `mix_layer(name)` returns it,
    so that an optimizer can train it or a program can save it. In a new network, use `bilm.Elmo`,
    which also holds the biLM.

    Args:
        name: name of the weights.
        bilm_ops: what a call of a `BidirectionalLanguageModel` returns: `lm_embeddings` float
            `(B, layers, T, D)` and `mask` boolean `(B, T)`.
        l2_coef: weight of the penalty l2_coef * sum w^2 on the weights; None for no penalty.
        use_top_only: return gamma times the last layer, without a penalty.
        do_layer_norm: normalize each layer before it is weighted.
        reuse: share the weights of the call that created `name`.
    Returns: dict of `weighted_op` float `(B, T, D)` and `regularization_op` float `()`; both
        are eager tensors.
    Raises: ValueError if `name` exists and `reuse` is False, or `name` does not exist and `reuse`
        is True; DataError if `bilm_ops` is not the result of a model with as many layers.

    Example:
        model = bilm.BidirectionalLanguageModel("options.json", "weights.hdf5")
        elmo = bilm.weight_layers("input", model(ids), l2_coef=1e-3)["weighted_op"]
    """
    layers, mask = _checked(bilm_ops)
    mix = _mix(name, reuse, layers.shape[1])
    if use_top_only:
        return {"weighted_op": mix.gamma * layers[:, -1], "regularization_op": ops.zeros(())}
    layers = normalized(layers, mask) if do_layer_norm else layers
    penalty = (l2_coef or 0.0) * ops.sum(ops.square(mix.weights_before_softmax))
    return {"weighted_op": mix(layers, mask=mask), "regularization_op": penalty}


def mix_layer(name: str) -> ScalarMix:
    """Return the Keras layer that holds the weights of `weight_layers` under a name.

    Raises: ValueError if no weights have this name.
    """
    if name not in _mixes:
        known = ", ".join(sorted(_mixes)) or "none"
        raise ValueError(f"no weights named {name!r}; expected one of: {known}")
    return _mixes[name]


def _checked(bilm_ops: Mapping[str, object]) -> tuple:
    """Return the layers and the mask as tensors."""
    if not isinstance(bilm_ops, Mapping) or not {"lm_embeddings", "mask"} <= set(bilm_ops):
        raise DataError(
            f"bilm_ops is {type(bilm_ops).__name__}; expected the dict that a "
            "BidirectionalLanguageModel returns, with lm_embeddings and mask"
        )
    layers = ops.convert_to_tensor(bilm_ops["lm_embeddings"], "float32")
    mask = ops.convert_to_tensor(bilm_ops["mask"], "bool")
    if len(layers.shape) != 4 or tuple(mask.shape) != (layers.shape[0], layers.shape[2]):
        raise DataError(
            f"lm_embeddings has shape {tuple(layers.shape)} and mask {tuple(mask.shape)}; expected "
            "(B, layers, T, D) and (B, T)"
        )
    return layers, mask


def _mix(name: str, reuse: bool, n_layers: int) -> ScalarMix:
    if reuse:
        mix = mix_layer(name)
        if mix.weights_before_softmax.shape[0] != n_layers:
            raise DataError(
                f"weights named {name!r} are for {mix.weights_before_softmax.shape[0]} layers, "
                f"but lm_embeddings has {n_layers}"
            )
        return mix
    if name in _mixes:
        raise ValueError(
            f"weights named {name!r} exist; pass reuse=True to share them, or another name"
        )
    # Keras names allow no slash, which bilm-tf's variable scopes do.
    mix = ScalarMix(name=name.replace("/", "_"))
    mix.build((None, n_layers, None, None))
    return _mixes.setdefault(name, mix)
