"""The settings of a run: the paper's under their names, and every check with its message."""

import dataclasses
import re
from typing import Any

import pytest

from pmeta.kinds.pictures.config import NAMED, ImageConfig
from pmeta.method.outer import Schedule
from pmeta.training.settings import parse_bytes


@pytest.mark.parametrize("backbone", ["4conv", "resnet12"])
@pytest.mark.parametrize("shots", [1, 5])
def test_named_configurations_are_those_of_section_4_2(backbone: str, shots: int) -> None:
    config = NAMED[f"miniimagenet-{backbone}-5way-{shots}shot"]
    assert (config.backbone, config.n_way, config.n_shot, config.image_size) == (
        backbone,
        5,
        shots,
        84,
    )
    assert (config.tasks, config.epoch_tasks, config.inner_steps, config.alpha_0) == (
        100 * 1000,
        1000,
        5,
        0.01,
    )
    assert config.meta_batch == (2 if (backbone, shots) == ("resnet12", 5) else 4)
    assert (config.channels, config.norm, config.pool) == (32, "group", "max")
    assert (config.method, config.clip_ratio_fw, config.clip_ratio_bw) == ("pmeta", 0.3, 0.0)
    assert not config.first_order


def test_names_are_lists_of_settings_that_pass_their_own_checks() -> None:
    assert all(dataclasses.replace(config) == config for config in NAMED.values())


def test_defaults_of_the_outer_loop_are_those_of_the_schedule() -> None:
    shared = {f.name: f.default for f in dataclasses.fields(Schedule) if f.name != "updates"}
    assert {name: getattr(ImageConfig(), name) for name in shared} == shared


def test_updates_cover_all_tasks() -> None:
    assert [ImageConfig(tasks=n, meta_batch=4).updates for n in (1, 4, 5, 100)] == [1, 1, 2, 25]


def test_a_run_can_change_what_its_method_drops() -> None:
    row = ImageConfig(
        method="pmeta", clip_ratio_fw=None, clip_ratio_bw=0.2, sparse_bw="y"
    ).method_row()
    assert (row.scores, row.clip_ratio_fw, row.clip_ratio_bw, row.sparse_bw) == (
        "attention",
        None,
        0.2,
        "y",
    )
    assert ImageConfig(method="maml++", scores="static").method_row().scores == "static"
    assert ImageConfig(method="maml").method_row().scores == "none"


COUNTS = (
    "n_way",
    "n_shot",
    "n_query",
    "inner_steps",
    "tasks",
    "meta_batch",
    "epoch_tasks",
    "val_tasks",
    "channels",
)
RATES = ("alpha_0", "alpha_lr", "attention_lr", "attention_bias_lr", "head_scale")
nan = float("nan")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *[({name: 0}, f"--{name.replace('_', '-')} must be at least 1, got 0.") for name in COUNTS],
        *[
            ({name: value}, f"--{name.replace('_', '-')} must be positive, got {value}.")
            for name in RATES
            for value in (0.0, nan)
        ],
        (
            {"lr": float("inf")},
            "--lr must not be negative, got inf: 0 turns the training of weights off.",
        ),
        ({"cut_at": "body"}, "--cut-at says where features are kept: give --cache-features."),
        (
            {"cache_features": True},
            "--cache-features is for a network that was trained before, FILE.py:FUNCTION: the "
            "backbones of ours are trained as a whole.",
        ),
        (
            {"cache_features": True, "model": "a.py:f"},
            "--cache-features keeps what no budget can reach: give --memory-budget, or a stage "
            "with --cut-at.",
        ),
        (
            {"cache_features": True, "model": "a.py:f", "cut_at": "b", "jitter": 0.1},
            "--cache-features takes pictures as they are: leave out --least-area, --jitter and "
            "--other-camera.",
        ),
        (
            {"train_from": "body"},
            "--train-from says which weights of a network of your own are trained: give "
            "FILE.py:FUNCTION and --lr above 0, or leave it out.",
        ),
        (
            {"train_from": "body", "model": "a.py:f", "lr": 0.0},
            "--train-from says which weights of a network of your own are trained: give "
            "FILE.py:FUNCTION and --lr above 0, or leave it out.",
        ),
        ({"most_images": -1}, "--most-images must not be negative, got -1."),
        ({"groups": 0}, "--groups must divide --channels, got 0 groups for 32 channels."),
        ({"groups": 5}, "--groups must divide --channels, got 5 groups for 32 channels."),
        ({"warm_up": -0.1}, "--warm-up is a share of the training in [0, 1], got -0.1."),
        ({"freeze_at": 1.1}, "--freeze-at is a share of the training in [0, 1], got 1.1."),
        ({"lam": -1.0}, "--lam must not be negative, got -1.0: 0 turns the penalty off."),
        ({"lam": nan}, "--lam must not be negative, got nan: 0 turns the penalty off."),
        (
            {"freeze_below": -1.0},
            "--freeze-below must not be negative, got -1.0: 0 turns the threshold off.",
        ),
        (
            {"image_size": 0},
            "--image-size must be at least 1, or None for images as they are, got 0.",
        ),
        ({"seed": -1}, "--seed and --workers must not be negative, got -1 and 0."),
        ({"workers": -1}, "--seed and --workers must not be negative, got 0 and -1."),
        (
            {"clip_ratio_fw": 1.0},
            "clip ratio rho must be in [0, 1), got clip_ratio_fw=1.0: at 1 no channel is left to "
            "update.",
        ),
        (
            {"method": "maml", "sparse_fw": "x"},
            "sparse_fw='x' and sparse_bw='y' multiply by attention scores: set scores='attention'.",
        ),
        (
            {"method": "maml", "memory_budget": "1MB"},
            "a memory budget is met by dropping layers, which MAML does not: use pmeta-lr or "
            "pmeta.",
        ),
        (
            {"memory_budget": "much"},
            "a memory budget is a size such as 1MB, 800kB or 1.5MiB, or a share of what MAML takes "
            "such as 50%, got 'much'.",
        ),
    ],
)
def test_checks_and_their_messages(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ImageConfig(**settings)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1MB", 10**6), ("800kB", 800_000), ("800 KB", 800_000), ("1.5MiB", 1_572_864),
        ("64KiB", 65_536), ("2k", 2000), ("1g", 10**9), ("1GiB", 2**30), (".5MB", 500_000),
        ("5.", 5), ("105000", 105_000), ("10 B", 10), (" 1mb ", 10**6),
    ],
)  # fmt: skip
def test_units_of_the_budget(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "MB", "0MB", "-1MB", "1TB", "1e6", "5iB", "1,000kB", "1MBit", "nan", "1 M i B"]
)
def test_no_sizes(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"^a memory budget is a size such as 1MB, 800kB or 1\.5MiB, or a share "
    ):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("inner_steps", 10**12, "--inner-steps must be at most 1,000, got 1000000000000"),
        ("n_way", 10**9, "--n-way must be at most 65,535, got 1000000000"),
        ("tasks", 10**12, "--tasks must be at most 1,000,000,000, got"),
        ("n_query", 0, "--n-query must be at least 1, got 0"),
        ("n_shot", 1.5, "--n-shot must be at least 1, got 1.5"),
    ],
)
def test_numbers_beyond_all_measure(name: str, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ImageConfig(**{name: value})


def test_what_a_run_of_pictures_says_of_itself() -> None:
    mini = ImageConfig(data="/data/mini")
    assert mini.setup((3, 84, 84)) == "mini 84x84, 4Conv, 5-way 1-shot"
    own = ImageConfig(data="/data/mini", model="net.py:make", n_shot=5)
    assert own.setup((1, 28, 28)) == "mini 1x28x28, net.py:make, 5-way 5-shot"
    assert mini.changes == []
    other = ImageConfig(clip_ratio_fw=None, scores="static", norm="batch")
    assert other.changes == ["scores = static", "clip_ratio_fw = None", "norm = batch"]


def test_the_paper_is_quoted_only_for_its_own_set_up() -> None:
    mini = ImageConfig(data="/data/mini")
    assert mini.paper((3, 84, 84))["pmeta"] == {"score": 48.8, "memory_mb": 0.99, "gmac": 0.15}
    assert mini.paper((1, 28, 28)) == {}
    changes: list[dict[str, Any]] = [
        {"n_way": 10}, {"n_shot": 3}, {"channels": 64}, {"data": "glyphs"}, {"norm": "batch"},
        {"data": "/d/flowers102"}, {"model": "net.py:make"},
    ]  # fmt: skip
    for change in changes:
        assert dataclasses.replace(mini, **change).paper((3, 84, 84)) == {}
