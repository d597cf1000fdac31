"""The boards and build systems that a folder can be written for, as rows of data."""

from dataclasses import dataclass

KB = 1024


@dataclass(frozen=True)
class Target:
    """A build system, and a part whose memory is known; sizes of None are not checked."""

    name: str
    kind: str
    """Folder of templates."""
    board: str
    """In words, for the README."""
    flash_bytes: int | None = None
    """For code and the model."""
    ram_bytes: int | None = None
    """For the arena, the stack and all other variables."""
    cpu: str = ""
    """Flags of the compiler."""
    machine: str = ""
    """QEMU's name."""
    hz: int = 0
    """Of SysTick in QEMU."""
    vectors: int = 0
    flash: int = 0
    ram: int = 0
    """Addresses."""


_ROWS = (
    Target(
        "qemu-m4f",
        "cortex-m",
        "STM32F405 (Cortex-M4F), QEMU's netduinoplus2",
        flash_bytes=1024 * KB - KB,
        ram_bytes=128 * KB,
        cpu="-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16",
        machine="netduinoplus2",
        hz=168_000_000,
        vectors=0x08000000,
        flash=0x08000400,
        ram=0x20000000,
    ),
    Target(
        "qemu-m7",
        "cortex-m",
        "MPS2 with a Cortex-M7, QEMU's mps2-an500",
        flash_bytes=4096 * KB - KB,
        ram_bytes=4096 * KB,
        cpu="-mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-d16",
        machine="mps2-an500",
        hz=25_000_000,
        vectors=0x00000000,
        flash=0x00000400,
        ram=0x20000000,
    ),
    Target(
        "qemu-m55",
        "cortex-m",
        "MPS3 with a Cortex-M55 and its vector unit (MVE), QEMU's mps3-an547",
        flash_bytes=2048 * KB,
        ram_bytes=4096 * KB,
        cpu="-mcpu=cortex-m55 -mthumb -mfloat-abi=hard",
        machine="mps3-an547",
        hz=32_000_000,
        vectors=0x00000000,
        flash=0x11000000,
        ram=0x31000000,
    ),
    Target("generic", "generic", "any machine with a C99 compiler"),
    Target(
        "arduino",
        "arduino",
        "Arduino Nano 33 BLE (nRF52840, Cortex-M4F)",
        flash_bytes=1024 * KB - 64 * KB,
        ram_bytes=256 * KB - 48 * KB,
    ),
    Target(
        "esp-idf",
        "esp-idf",
        "ESP32-S3",
        flash_bytes=1024 * KB,
        ram_bytes=320 * KB,
    ),
    Target(
        "zephyr",
        "zephyr",
        "STM32F746 (Cortex-M7) on a Nucleo board",
        flash_bytes=1024 * KB - 32 * KB,
        ram_bytes=320 * KB - 16 * KB,
    ),
    Target(
        "platformio",
        "platformio",
        "STM32F767 (Cortex-M7) on a Nucleo board",
        flash_bytes=2048 * KB,
        ram_bytes=512 * KB - 8 * KB,
    ),
)
TARGETS = {row.name: row for row in _ROWS}
"""By name. Of parts with an operating system or a core library, what these take is left out."""
