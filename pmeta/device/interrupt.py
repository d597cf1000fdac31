"""Ctrl-C while the engine computes: it is asked between two instructions whether to go on."""

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_asked: list[int] = []
"""Signals that came while the engine was at work."""
ASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _context: len(_asked))
"""What `pmeta_on_yield` gets: anything but 0 stops the engine."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Have Ctrl-C end what runs here, in the engine too, and raise KeyboardInterrupt then.

    Python itself would see it only when the engine is done. In other threads than the main one, and
    where the program has a handler of its own, nothing changes."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def note(number: int, frame: Any) -> None:
        _asked.append(number)

    _asked.clear()
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if _asked:
            _asked.clear()
            raise KeyboardInterrupt
