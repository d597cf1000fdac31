"""Adapt and predict on a device from model.pmeta: the C engine behind numpy, without torch."""

from pmeta.device.binding import Adaptation, DeviceModel, load
from pmeta.device.calls import ENGINE, EngineError, library

__all__ = ["ENGINE", "Adaptation", "DeviceModel", "EngineError", "library", "load"]
