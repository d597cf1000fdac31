"""The methods as rows of data."""

import pytest

from pmeta.method.methods import METHODS, Method, method


def test_the_compared_methods() -> None:
    """Sec. 4.1: what each updates, learns, makes sparse, and scores."""
    rows = {
        name: (m.title, m.update, m.learn_alpha, m.sparse_alpha, m.scores)
        for name, m in METHODS.items()
    }
    assert rows == {
        "maml": ("MAML", "all", False, False, "none"),
        "anil": ("ANIL", "head", False, False, "none"),
        "boil": ("BOIL", "body", False, False, "none"),
        "maml++": ("MAML++", "all", True, False, "none"),
        "pmeta-lr": ("p-Meta (LR)", "all", True, True, "none"),
        "pmeta": ("p-Meta (LR+attention)", "all", True, True, "attention"),
    }
    assert (METHODS["pmeta"].clip_ratio_fw, METHODS["pmeta"].clip_ratio_bw) == (0.3, 0.0)


def test_by_name() -> None:
    assert method("boil") is METHODS["boil"]
    with pytest.raises(
        ValueError,
        match=r"method must be one of maml, .*, pmeta-lr, pmeta, protonet, got 'mamlpp'",
    ):
        method("mamlpp")


@pytest.mark.parametrize("rho", [1.0, -0.1, 1.5, float("nan"), float("inf")])
@pytest.mark.parametrize("flag", ["clip_ratio_fw", "clip_ratio_bw"])
def test_clip_ratio_outside(flag: str, rho: float) -> None:
    message = (
        rf"clip ratio rho must be in \[0, 1\), got {flag}={rho}: at 1 no channel is left to update"
    )
    with pytest.raises(ValueError, match=message):
        Method("x", **{flag: rho})  # type: ignore[arg-type]


@pytest.mark.parametrize("rho", [None, 0.0, 0.999])
def test_clip_ratio_inside(rho: float | None) -> None:
    assert Method("x", clip_ratio_fw=rho, clip_ratio_bw=rho).clip_ratio_fw == rho


@pytest.mark.parametrize(
    ("flag", "known"),
    [
        ("update", "all, head, body, none"),
        ("scores", "none, attention, static"),
        ("sparse_fw", "w, x"),
        ("sparse_bw", "w, y"),
    ],
)
def test_unknown_words(flag: str, known: str) -> None:
    with pytest.raises(ValueError, match=f"{flag} must be one of {known}, got 'z'"):
        Method("x", **{flag: "z"})  # type: ignore[arg-type]


@pytest.mark.parametrize("sparse", [{"sparse_fw": "x"}, {"sparse_bw": "y"}])
@pytest.mark.parametrize("scores", ["none", "static"])
def test_sparse_tensors_need_attention(sparse: dict[str, str], scores: str) -> None:
    with pytest.raises(ValueError, match="multiply by attention scores: set scores='attention'"):
        Method("x", scores=scores, **sparse)  # type: ignore[arg-type]
