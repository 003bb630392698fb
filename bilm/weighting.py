"""`weight_layers` of bilm-tf: a learned mix of a biLM's layers, by name."""

from __future__ import annotations

from collections.abc import Mapping

import keras
from keras import ops

from bilm.errors import DataError
from bilm.layers.scalar_mix import ScalarMix

_mixes: dict[str, Mix] = {}


class Mix(keras.layers.Layer):
    """gamma times the mix of all layers, or gamma times the top layer alone.

    Args:
        use_top_only: take the last layer; nothing but gamma is learned then.
        l2_coef, do_layer_norm: see `ScalarMix`.

    Inputs: float `(B, layers, T, D)` and a boolean mask `(B, T)`. Returns: float `(B, T, D)`.
    """

    def __init__(self, use_top_only: bool, l2_coef: float | None, do_layer_norm: bool, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.use_top_only = use_top_only
        self.mix = None if use_top_only else ScalarMix(do_layer_norm, l2_coef, name="mix")

    def build(self, input_shape):
        """Create the weights: `n_layers` of them and gamma, or gamma alone."""
        if self.use_top_only:
            self.gamma = self.add_weight((), "ones", name="gamma")
        else:
            self.mix.build(input_shape)
        self.built = True

    def call(self, layers, mask=None):
        """Mix: float (B, layers, T, D), boolean (B, T) -> float (B, T, D)."""
        if self.use_top_only:
            return self.gamma * layers[:, -1]
        return self.mix(layers, mask=mask)


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
        `bilm_ops` is not what a model returns.

    Example:
        model = bilm.BidirectionalLanguageModel("options.json", "weights.hdf5")
        elmo = bilm.weight_layers("input", model(ids), l2_coef=1e-3)["weighted_op"]
    """
    if not isinstance(bilm_ops, Mapping) or not {"lm_embeddings", "mask"} <= set(bilm_ops):
        raise DataError(
            f"bilm_ops is {type(bilm_ops).__name__}; expected the dict that a "
            "BidirectionalLanguageModel returns, with lm_embeddings and mask"
        )
    layer = _layer(name, reuse, use_top_only, l2_coef, do_layer_norm)
    layers = ops.convert_to_tensor(bilm_ops["lm_embeddings"], "float32")
    weighted = layer(layers, mask=ops.convert_to_tensor(bilm_ops["mask"], "bool"))
    penalty = sum(layer.losses) if layer.losses else ops.zeros(())
    return {"weighted_op": weighted, "regularization_op": penalty}


def mix_layer(name: str) -> Mix:
    """Return the Keras layer that `weight_layers` created under a name.

    Raises: ValueError if there is none.
    """
    if name not in _mixes:
        known = ", ".join(sorted(_mixes)) or "none"
        raise ValueError(f"no weights named {name!r}; expected one of: {known}")
    return _mixes[name]


def _layer(
    name: str, reuse: bool, use_top_only: bool, l2_coef: float | None, do_layer_norm: bool
) -> Mix:
    if reuse:
        return mix_layer(name)
    if name in _mixes:
        raise ValueError(
            f"weights named {name!r} exist; pass reuse=True to share them, or another name"
        )
    # Keras names allow no slash, which bilm-tf's variable scopes do.
    layer = Mix(use_top_only, l2_coef, do_layer_norm, name=name.replace("/", "_"))
    return _mixes.setdefault(name, layer)
