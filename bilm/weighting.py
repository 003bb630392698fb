"""`weight_layers` of bilm-tf: a learned mix of a biLM's layers, by name."""

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
    """Return the weighted sum of a biLM's layers, as bilm-tf's function of this name does.

    The weights belong to a Keras layer that this module keeps under `name`; `mix_layer(name)`
    returns it, for an optimizer or to save it. A new network should use `bilm.Elmo`, which holds
    the biLM as well.

    Args:
        name: of the weights.
        bilm_ops: what calling a `BidirectionalLanguageModel` returns: `lm_embeddings` float
            `(B, layers, T, D)` and `mask` boolean `(B, T)`.
        l2_coef: weight of the penalty l2_coef * sum w^2 on the weights; None for no penalty.
        use_top_only: gamma times the last layer, without a penalty.
        do_layer_norm: normalize each layer before it is weighted.
        reuse: share the weights of the call that created `name`.
    Returns: dict of `weighted_op` float `(B, T, D)` and `regularization_op` float `()`; both are
        tensors that hold values, since nothing here is a graph.
    Raises: ValueError if `name` exists and `reuse` is False, or the other way round; DataError if
        `bilm_ops` is not what a model with as many layers returns.

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
    """Return the Keras layer with the weights that `weight_layers` created under a name.

    Raises: ValueError if there is none.
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
