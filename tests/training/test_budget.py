"""A budget of the training and of its export: both count plans that take more time."""

import torch

from pmeta.compiler.export import export
from pmeta.method.learned import init_meta
from pmeta.method.methods import METHODS
from pmeta.network.backbones import FourConv, initialise
from pmeta.network.take_in import take_in
from pmeta.training.budget import Sample, arena_of, budget_choice, export_budget

SAMPLE = Sample((3, 84, 84), "uint8")


def test_layers_that_fit_only_when_streamed_are_chosen_and_exported_so() -> None:
    generator, method = torch.Generator().manual_seed(0), METHODS["pmeta"]
    net = take_in(initialise(FourConv(), generator), torch.zeros(1, 3, 84, 84))
    meta = init_meta(net, method, 1, 0.01, generator)
    what = net, meta, method
    choose = budget_choice(*what, "238kB", "arena", 5, SAMPLE)
    assert choose is not None
    chosen = choose(meta)
    assert arena_of(*what, SAMPLE)(chosen.updates()) > 238_000
    assert arena_of(*what, SAMPLE, 238_000)(chosen.updates()) <= 238_000
    own = export_budget(net, chosen, method, "238kB", "arena", SAMPLE, 1)
    assert own == 238_000
    made = export(net, chosen, method, SAMPLE.shape, input_type="uint8", memory_budget=own)
    assert made.arena_bytes <= 238_000
    assert export_budget(net, chosen, method, "1MB", "arena", SAMPLE, 1) == 1_000_000
    for budget, accounting in (("", "arena"), ("150kB", "arena"), ("238kB", "exact")):
        assert export_budget(net, chosen, method, budget, accounting, SAMPLE, 1) is None
    assert export_budget(*what, "238kB", "arena", SAMPLE, 1) is None  # not chosen yet
