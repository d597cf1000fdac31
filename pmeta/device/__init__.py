"""Adapt and predict on a device from model.pmeta: the C engine behind numpy, without torch."""

from pmeta.device.binding import ENGINE, Adaptation, DeviceModel, EngineError, library, load

__all__ = ["ENGINE", "Adaptation", "DeviceModel", "EngineError", "library", "load"]
