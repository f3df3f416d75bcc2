"""Torsos: layers that compute features from observations."""

from .torsos import (
    ConvTorso,
    MaskHidingTorso,
    MLPTorso,
    NatureTorso,
    NormalizingTorso,
    ObservationTorso,
    PartsTorso,
    check_filters,
    check_nature_images,
    part_of,
    rest_of,
)

__all__ = [
    "ConvTorso",
    "MLPTorso",
    "MaskHidingTorso",
    "NatureTorso",
    "NormalizingTorso",
    "ObservationTorso",
    "PartsTorso",
    "check_filters",
    "check_nature_images",
    "part_of",
    "rest_of",
]
