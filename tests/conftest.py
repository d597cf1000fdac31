"""One thread: sums of floats then run in one order, and test workers do not fight for the cores.
What the tests decode goes into a folder of their own; the embedded set is taken where it is."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import torch
from hypothesis import settings

from pmeta.base.files import cache_folder

torch.set_num_threads(1)
settings.register_profile("any machine", deadline=None)  # a slow or busy one is not a mistake
settings.load_profile("any machine")

if "PMETA_CACHE" not in os.environ:
    own = Path(tempfile.mkdtemp(prefix="pmeta-tests-"))
    for file in cache_folder().glob("glyphs-*"):
        (own / file.name).symlink_to(file)
    os.environ["PMETA_CACHE"] = str(own)
    atexit.register(shutil.rmtree, own, ignore_errors=True)
