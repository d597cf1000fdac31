"""The tables that `pmeta cost` prints for a person."""

from rich import box
from rich.console import Console
from rich.table import Table

from pmeta.cli.cost import IMAGES, CostConfig
from pmeta.cost.adaptation import WORD, layer_macs, stored_words
from pmeta.method.methods import METHODS
from pmeta.paper import note, printed

TITLES = {
    "4conv": "4Conv on 84x84 images",
    "resnet12": "ResNet12 on 84x84 images",
    "mlp-cheetah": "MLP policy on Half-Cheetah",
    "mlp-navigation": "MLP policy on 2D navigation",
}
ROWS = {
    "memory_mb": "peak memory of adaptation, MB",
    "exact_memory_mb": "  with what the paper leaves out",
    "inference_mb": "peak memory of inference, MB",
    "gmac": "one adaptation step, GMACs",
    "inference_gmac": "inference on the same samples, GMACs",
    "static_mb": "weights of the model, MB",
    "attention_mb": "weights of the attention, MB",
    "sample_mb": "samples, MB",
}


def show(config: CostConfig, ours: dict[str, float], paper: dict[str, float]) -> None:
    """Print what is stored and computed layer by layer, the totals beside the paper's, and what to know about them."""
    console = Console(highlight=False)
    console.print(
        f"\n[bold]{TITLES[config.backbone]}, {METHODS[config.method].title}[/]: {_support(config)}\n"
    )
    console.print(_layers(config))
    console.print(_totals(ours, paper))
    for line in _notes(config, paper):
        console.print(line, style="dim")


def _support(config: CostConfig) -> str:
    if config.backbone in IMAGES:
        task = f"{config.ways or 5}-way {config.n_shot}-shot, {config.samples} images"
    else:
        task = f"{config.samples} episodes of 200 steps"
    return f"{task}, {config.at_a_time} at a time"


def _layers(config: CostConfig) -> Table:
    ops, args = config.ops, (config.layers, config.ratios)
    paper = stored_words(ops, *args, "paper", config.attention)
    exact = stored_words(ops, *args, "exact", config.attention)
    counts = layer_macs(ops, *args, 1.0, config.attention)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("layer", no_wrap=True)
    for head in ("stored kB", "exact kB", "forward MMAC", "backward MMAC"):
        table.add_column(head, justify="right", no_wrap=True)
    for i, op in enumerate(ops):
        if op.name:
            mark, style = ("*", "bold") if op.name in config.layers else (" ", "dim")
            mmacs = (_number(x * config.samples / 1e6) if x else "" for x in counts[op.name])
            table.add_row(f"{mark} {op.name}", _kb(paper[i]), _kb(exact[i]), *mmacs, style=style)
    bits = [sum(words[i] for i, op in enumerate(ops) if not op.name) for words in (paper, exact)]
    table.add_row("  ReLU, max-pool", *map(_kb, bits), "", "", style="dim")
    return table


def _totals(ours: dict[str, float], paper: dict[str, float]) -> Table:
    table = Table("", box=box.SIMPLE_HEAD)
    table.add_column("ours", justify="right")
    table.add_column("paper", justify="right")
    for name, title in ROWS.items():
        if name in ours:
            table.add_row(title, _number(ours[name]), _number(paper[name]) if name in paper else "")
    return table


def _notes(config: CostConfig, paper: dict[str, float]) -> list[str]:
    rl = "" if config.backbone in IMAGES else ", the episodes kept for the baseline fit"
    notes = [
        "* is updated. Stored: kept for the backward pass, for one sample. MACs: all samples, one step. MB = 10^6 bytes.",
        f"Exact adds dense group-norm inputs, kernel scratch, the backward walk{rl}.",
    ]
    if config.attention:
        notes.append(
            f"At rho = {config.rho:g} no more is stored, whatever the data: mu_fw <= 1 - rho."
        )
    if METHODS[config.method].sparse_alpha and config.layers == config.own_layers:
        notes.append(
            "Every layer counts as updated, the most that training can leave: name the layers left with --update."
        )
        notes += _trained(config)
    if note(paper):
        notes.append(note(paper))
    return notes


def _trained(config: CostConfig) -> list[str]:
    figures = printed(
        config.backbone, config.n_shot, config.method, config.at_a_time, config.samples
    )
    if (config.ways or 5) != 5 or "memory_mb" not in figures:
        return []
    return [
        f"The paper prints {figures['memory_mb']} MB and {figures['gmac']} GMACs with the layers that its training left."
    ]


def _kb(words: float) -> str:
    return _number(words * WORD / 1000) if words else ""


def _number(x: float) -> str:
    """Two decimals, or more where they would say nothing."""
    return f"{x:,.2f}" if x >= 0.1 else f"{x:.2g}"
