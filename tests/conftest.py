"""One thread: sums of floats then run in one order, and test workers do not fight for the cores."""

import torch

torch.set_num_threads(1)
