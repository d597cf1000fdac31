"""Published data sets -> the common layout DST/{train,val,test}/<class>/<image>."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from pmeta.data.importers.pickles import one_line
from pmeta.data.importers.write import Picture, write_pictures

KINDS = {  # name: (module:function, pictures in the whole set, what SRC is)
    "miniimagenet-pickle": (
        "miniimagenet:pictures",
        60_000,
        "folder of mini-imagenet-cache-{train,val,test}.pkl",
    ),
    "tieredimagenet": (
        "tieredimagenet:pictures",
        779_165,
        "folder of {train,val,test}_{images_png,labels}.pkl",
    ),
    "cub": ("cub:pictures", 11_788, "CUB_200_2011 or CUB_200_2011.tgz"),
    "omniglot": (
        "omniglot:pictures",
        32_460,
        "folder of images_background.zip and images_evaluation.zip",
    ),
    "cifar-fs": ("cifar100:pictures", 60_000, "cifar-100-python or cifar-100-python.tar.gz"),
    "sp-sw-har": ("sp_sw_har:recordings", 446, "folder DATA of sXX/sXX_YY_{sp,sw}.csv"),
}
RECORDINGS = ("sp-sw-har",)
"""Kinds of recordings: DST/<person>/<device>/<recording>.csv."""


def import_data(kind: str, src: Path, dst: Path) -> None:
    """Turn `src`, a data set of the kind named, into the common layout at `dst`, which must not be
    there yet."""
    if kind not in KINDS:
        raise ValueError(f"the kind of data must be one of {', '.join(KINDS)}, got {kind!r}.")
    if not src.exists():
        raise ValueError(f"{src} is not there; for {kind} give the {KINDS[kind][2]}.")
    where, total, _ = KINDS[kind]
    module, function = where.split(":")
    read: Callable[[Path], Iterator[Picture]] = getattr(
        import_module(f"pmeta.data.importers.{module}"), function
    )
    try:
        write_pictures(read(src), kind, src, dst, total)
    except (
        *(TypeError, LookupError, AttributeError, ArithmeticError, MemoryError),
        SystemError,  # by numpy, of strings with characters that are none
    ) as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise ValueError(
            f"{src} is not {kind} as it was published ({reason}): copy it again."
        ) from None
