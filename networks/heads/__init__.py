"""Heads: what networks compute from features, such as action values, logits and distributions."""

from .heads import (
    DistributionalQHead,
    DuelingQHead,
    GaussianValue,
    GaussianValueHead,
    MLPHead,
    PolicyValue,
    PolicyValueHead,
    QHead,
    SquashedGaussianHead,
    ValueHead,
)

__all__ = [
    "DistributionalQHead",
    "DuelingQHead",
    "GaussianValue",
    "GaussianValueHead",
    "MLPHead",
    "PolicyValue",
    "PolicyValueHead",
    "QHead",
    "SquashedGaussianHead",
    "ValueHead",
]
