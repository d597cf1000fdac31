"""Adapt and predict on a device from model.pmeta: the C engine behind numpy, without torch."""

from pmeta.device.binding import Adaptation, DeviceModel, load
from pmeta.device.calls import ENGINE, EngineError, library
from pmeta.device.predictions import Prediction, Predictions
from pmeta.device.samples import Samples, read_picture, read_samples

__all__ = [
    "ENGINE",
    "Adaptation",
    "DeviceModel",
    "EngineError",
    "Prediction",
    "Predictions",
    "Samples",
    "library",
    "load",
    "read_picture",
    "read_samples",
]
