"""What a model takes of a part, and whether it has that."""

from dataclasses import dataclass

from pmeta.device import DeviceModel
from pmeta.firmware.targets import Target

CODE_BYTES = 64 * 1024
"""Flash of engine, example and libm; no Cortex-M that was tried takes more."""
STACK_BYTES = 4096
"""Reserved; it does not depend on the model. Tests paint the stack and measure less."""
OTHER_BYTES = 2048
"""RAM of `pmeta_model`, of the example's variables and of the C library, without the outputs."""


@dataclass(frozen=True)
class Needs:
    """Bytes."""

    model: int
    samples: int
    """Of the example, in flash."""
    arena: int
    outputs: int
    """One row of scores."""

    @property
    def flash(self) -> int:
        return self.model + self.samples + CODE_BYTES

    @property
    def ram(self) -> int:
        return self.arena + self.outputs + STACK_BYTES + OTHER_BYTES


def needs(model: DeviceModel, model_bytes: int, sample_bytes: int) -> Needs:
    """What a model and the samples of its example take."""
    return Needs(model_bytes, sample_bytes, model.arena_bytes, 4 * model.outputs * model.rows)


def check_fit(need: Needs, target: Target) -> None:
    """Raises ValueError where the model does not fit, with the bytes."""
    where = f"{target.board} ({target.name})"
    if target.ram_bytes is not None and need.ram > target.ram_bytes:
        raise ValueError(
            f"the model needs {need.ram:,} bytes of RAM, {where} has {target.ram_bytes:,}: arena "
            f"{need.arena:,}, stack {STACK_BYTES:,}, the rest {need.outputs + OTHER_BYTES:,}. "
            f"Take a smaller model (pmeta zoo), export yours again with a smaller --memory-budget, "
            f"or train it with one, or name a larger part with --ram."
        )
    if target.flash_bytes is not None and need.flash > target.flash_bytes:
        raise ValueError(
            f"the model needs {need.flash:,} bytes of flash, {where} has {target.flash_bytes:,}: "
            f"model {need.model:,}, samples of the example {need.samples:,}, code {CODE_BYTES:,}. "
            f"Take fewer samples, a smaller network, or name a larger part with --flash."
        )
