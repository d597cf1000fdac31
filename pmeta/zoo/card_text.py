"""The card of a model of the zoo as Markdown."""

from typing import Any

LICENCE = (
    "The weights come under the licence of this project (MIT), as far as we can give one.\n"
    "They were learned from MiniImageNet, whose pictures are ImageNet's.\n"
    "The pictures are not distributed here, and ImageNet's own terms (research and education, "
    "nothing commercial) bind whoever uses them.\nWhether the terms of pictures reach weights that "
    "were learned from them is "
    "not settled: ask somebody who knows before you sell what is made with this model."
)

USUAL_CHANNELS = 32
"""Of 4Conv in the paper; a card names more."""


def text(card: dict[str, Any]) -> str:
    """The whole card."""
    parts = [
        f"# {card['name']}",
        *introduction(card),
        *("## Accuracy", accuracy(card), *commands(card), *grid(card)),
        *certainty(card),
        *("## Memory", theory(card), files(card), updates(card)),
        *("## Training", schedule(card), commands_of_training(card)),
        *("## Licence", LICENCE),
    ]
    return "\n\n".join(parts) + "\n"


def introduction(card: dict[str, Any]) -> list[str]:
    """What it is, and the warning that it is not finished, if so."""
    c, h, w = card["data"]["image"]
    s, name = card["schedule"], card["name"]
    wide = card["backbone"] == "4conv" and card["config"]["channels"] > USUAL_CHANNELS
    width = f" with {card['config']['channels']} channels" if wide else ""
    said = [
        f"{card['backbone']}{width} for pictures of {w}x{h} pixels and {c} channels, "
        f"meta-trained by {card['method']} for "
        f"{card['task']} tasks on {card['data']['name']}.\n`pmeta adapt {name} --support FOLDER "
        "--query FOLDER` adapts it."
    ]
    if s["trained"] < s["planned"]:
        said.append(
            f"**Not finished: {s['trained']:,} of {s['planned']:,} planned tasks were trained when "
            "this model was taken.**\n"
            "A better one will take its place."
        )
    return said


def table(head: list[str], rows: list[list[str]]) -> str:
    """In Markdown.

    >>> print(table(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def percent(score: dict[str, Any]) -> str:
    """An accuracy with its CI95."""
    return f"{score['accuracy']:.2f} ± {score['ci95']:.2f} %"


def accuracy(card: dict[str, Any]) -> str:
    """With as many classes as in training, and with more where the head takes any number."""
    e, classes = card["evaluation"], card["data"]["classes"]["val"]
    what = (
        f"tasks of the {classes} validation classes, {e['n_query']} queries a class, one sample at "
        "a time"
    )
    rows = [[card["task"], f"{e['tasks']:,}", percent(e)]]
    if "many" in e:
        many = e["many"]
        rows.append([f"{many['classes']} classes", f"{many['tasks']:,}", percent(many)])
    return table([what, "tasks", "accuracy ± CI95"], rows)


def certainty(card: dict[str, Any]) -> list[str]:
    """Temperatures and calibration errors, where they were measured."""
    if "calibration" not in card:
        return []
    found = card["calibration"]
    rows = [
        [
            str(s["n_shot"]),
            f"{s['temperature']:.2f}",
            f"{100 * s['ece']:.1f} %",
            f"{100 * s['ece_before']:.1f} %",
        ]
        for s in found["shots"]
    ]
    heads = ["samples of a class", "temperature", "calibration error", "without the temperature"]
    said = (
        f"{found['tasks']:,} tasks of the validation classes each: half of them fit the "
        "temperature, the others measure the error (ECE, 15 bins)."
    )
    return ["## How sure it is", said, table(heads, rows)]


def commands(card: dict[str, Any]) -> list[str]:
    """How to get these figures."""
    e = card["evaluation"]
    evaluate = f"pmeta evaluate {card['name']} --data DIR --split val --n-query {e['n_query']}"
    lines = [f"{evaluate} --tasks {e['tasks']}"]
    if "many" in e:
        lines.append(f"{evaluate} --tasks {e['many']['tasks']} --n-way {e['many']['classes']}")
    return [
        "The model was chosen on other tasks of the same validation classes: expect a little less "
        "on classes that nobody has looked at.\nWith MiniImageNet in DIR these figures come from",
        "\n".join(["```", *lines, "```"]),
    ]


def grid(card: dict[str, Any]) -> list[str]:
    """Classes by samples in the engine, where it was measured, with the same tasks in a row."""
    found = card.get("engine")
    if not found:
        return []
    titles = {
        "steps": "all steps",
        "head": "steps on the head alone",
        "none": "no step (ProtoNet, same weights)",
    }
    parts = [found["arena_bytes"], *found["cells"]]
    used = [name for name in titles if all(name in part for part in parts)]
    rows = [
        [str(c["n_way"]), str(c["n_shot"]), f"{c['tasks']:,}"]
        + [f"{c[name][0]:.1f} ± {c[name][1]:.1f} %" for name in used]
        for c in found["cells"]
    ]
    arenas = ", ".join(f"{titles[name]} {found['arena_bytes'][name]:,}" for name in used)
    command = "`python benchmarks/shots.py` gives such a table."
    return [
        "In the C engine, validation classes, one sample at a time:",
        table(["classes", "samples of each", "tasks", *(titles[name] for name in used)], rows),
        f"Arena of the file for {found['outputs']} classes, in bytes: {arenas}.\n{command}",
    ]


def theory(card: dict[str, Any]) -> str:
    """In the two accountings of the cost model."""
    m = card["memory"]
    rows = [
        ["the paper's accounting, mean of the tasks", f"{m['paper_mb']:.3f} MB"],
        ["exact accounting, mean of the tasks", f"{m['exact_mb']:.3f} MB"],
        ["MACs of a step over the support set", f"{m['gmac']:.3f} G"],
    ]
    said = (
        "Both accountings are a model of any implementation, without the weights; the exact one "
        "adds what the paper leaves out, above all the whole input of each norm that the backward "
        "pass goes through.\n"
        "What our engine really takes is the arena below, with the weights that it changes: it can "
        "be smaller, because layers run in parts."
    )
    return f"{table(['adaptation, one sample at a time', ''], rows)}\n\n{said}"


def files(card: dict[str, Any]) -> str:
    """The bytes of each file and of the arena that it asks for."""
    keys = ("bytes", "arena_bytes", "state_bytes", "infer_bytes")
    rows = [[f["file"], str(f["outputs"]), *(f"{f[key]:,}" for key in keys)] for f in card["files"]]
    return table(
        ["file", "classes, up to", "bytes", "arena to adapt", "weights in it", "arena to infer"],
        rows,
    )


def updates(card: dict[str, Any]) -> str:
    """Which layers live."""
    steps = "; ".join(
        f"step {k}: {', '.join(names) or 'none'}" for k, names in enumerate(card["updates"], 1)
    )
    return f"Layers that adaptation updates: {steps}."


def schedule(card: dict[str, Any]) -> str:
    """How long, and what was chosen."""
    s = card["schedule"]
    limit, queries = s["memory_budget"], card["config"].get("train_queries") or s["n_query"]
    budget = f"a memory budget of {limit}" if limit else f"lambda {card['config']['lam']}"
    return (
        f"{s['trained']:,} of {s['planned']:,} planned tasks of the "
        f"{card['data']['classes']['train']} training classes (the paper trains on 100,000), "
        f"meta-batches of {s['meta_batch']}, {queries} queries a class, {budget}, seed "
        f"{s['seed']}.\nThe model is that of task {s['chosen_at']:,}, the best in validation."
    )


def commands_of_training(card: dict[str, Any]) -> str:
    """What makes this model again."""
    begun = (
        "It began from another run (`--init`); docs/results/recipe.md has all its stages.\n\n"
        if card["config"].get("init")
        else ""
    )
    return f"{begun}```\n{card['command']}\npython zoo/add.py RUN\n```"
