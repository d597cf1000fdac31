"""Adapt and predict on a device from model.pmeta: the C engine behind numpy, without torch."""

from pmeta.device.binding import Adaptation, DeviceModel, load
from pmeta.device.calls import ENGINE, EngineError, library
from pmeta.device.predictions import Prediction, Predictions
from pmeta.device.samples import Samples, in_order, read_picture, read_samples
from pmeta.device.support import read_support

__all__ = [
    "ENGINE",
    "Adaptation",
    "DeviceModel",
    "EngineError",
    "Prediction",
    "Predictions",
    "Samples",
    "in_order",
    "library",
    "load",
    "read_picture",
    "read_samples",
    "read_support",
]
