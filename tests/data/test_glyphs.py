"""The embedded set: many characters, no two alike, the same bytes everywhere."""

import hashlib
import unicodedata
from importlib.metadata import PackageNotFoundError, version
from itertools import combinations

import numpy as np
import pytest

from pmeta.data import glyphs
from pmeta.data.glyphs import SAMPLES, Glyph, choose_glyphs, draw_samples, look, open_glyphs
from pmeta.data.tasks import open_split


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("glyphs")


@pytest.fixture(scope="module")
def chosen():
    return choose_glyphs()


@pytest.fixture(scope="module")
def splits(cache, chosen):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            glyphs, "choose_glyphs", lambda: chosen
        )  # choosing takes seconds: once is enough
        return {
            split: open_split("glyphs", split, cache=cache) for split in ("train", "val", "test")
        }


def test_a_thousand_classes_or_more_shared_out_by_character(splits):
    sizes = [len(splits[s].classes) for s in ("train", "val", "test")]
    assert sum(sizes) >= 1000
    assert np.round(np.array(sizes) / sum(sizes), 2).tolist() == [0.64, 0.16, 0.20]
    for a, b in combinations(splits.values(), 2):
        assert not set(a.classes) & set(b.classes)


def test_every_class_has_its_samples_in_grey(splits):
    for images in splits.values():
        assert images.shape == (1, 28, 28)
        assert set(images.counts.tolist()) == {SAMPLES}
        assert images.skipped == []


def test_classes_are_named_after_their_characters(splits, chosen):
    names = {name for images in splits.values() for name in images.classes}
    assert "U+0041 LATIN CAPITAL LETTER A" in names
    assert names == {f"U+{ord(g.character):04X} {unicodedata.name(g.character)}" for g in chosen}


def test_many_scripts(chosen):
    scripts = {unicodedata.name(g.character).split()[0] for g in chosen}
    assert {
        "LATIN",
        "GREEK",
        "CYRILLIC",
        "ARMENIAN",
        "HEBREW",
        "ARABIC",
        "GEORGIAN",
        "CANADIAN",
        "LAO",
    } <= scripts


def test_look_alikes_of_other_scripts_are_left_out(chosen):
    characters = {g.character for g in chosen}
    assert "A" in characters
    assert not characters & set("ΑАᎪ")  # Greek Alpha, Cyrillic A, Cherokee Go
    assert len(characters & set("OoΟοОоՕօ0")) == 1
    assert not characters & set("éñöŽ")  # with accents


@pytest.fixture(scope="module")
def looks(chosen):
    """(class, look) of every drawing that is used."""
    return [(i, look(g.character, font)) for i, g in enumerate(chosen) for font in g.fonts]


def test_no_two_classes_look_alike_in_any_fonts(looks):
    owners = np.array([i for i, _ in looks])
    values = np.stack([drawn.ravel() for _, drawn in looks]).astype(np.float32)
    norms = (values**2).sum(1)
    for start in range(0, len(values), 1024):
        part = slice(start, start + 1024)
        distance = norms[part, None] + norms - 2 * values[part] @ values.T
        alike = 5 * distance < norms[part, None] + norms
        assert (owners[part, None] == owners)[alike].all()


def test_the_box_for_missing_characters_is_no_class(looks):
    boxes = [
        box.astype(int) for font in glyphs.FONTS if (box := look(chr(0x10FFFF), font)) is not None
    ]
    assert boxes
    drawn = np.stack([drawn for _, drawn in looks]).astype(int)  # (n, LOOK, LOOK)
    for box in boxes:
        distance = ((drawn - box) ** 2).sum((1, 2))
        assert (5 * distance >= (drawn**2).sum((1, 2)) + (box**2).sum()).all()


def test_samples_have_ink_stay_inside_and_differ(splits):
    images = splits["test"].images[..., 0]
    ink = (images > 127).mean((1, 2))
    assert ink.min() > 0.01
    assert ink.max() < 0.75
    corners = images[:, [0, 0, -1, -1], [0, -1, 0, -1]]
    assert (corners == 0).mean() > 0.99  # the background is black
    assert len({image.tobytes() for image in images}) == len(images)


def test_the_same_bytes_when_drawn_again(splits, chosen):
    train = splits["train"]
    j = train.classes.index("U+0041 LATIN CAPITAL LETTER A")
    again = draw_samples(next(g for g in chosen if g.character == "A"))
    assert np.array_equal(train.images[train.starts[j] :][:SAMPLES, ..., 0], again)


@pytest.mark.skipif(
    (version("matplotlib"), version("pillow")) != ("3.11.2", "13.0.0"),
    reason="other fonts or FreeType",
)
def test_the_same_bytes_on_every_machine(splits):
    digest = hashlib.sha256(
        splits["train"].images.tobytes()
    ).hexdigest()  # of all splits: they share one array
    assert digest == "78b8c20a0eb2e3f7709555b9d76d8e4a49a99238714f5901ed8431331fc76505"


def test_without_matplotlib_the_error_says_so(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(glyphs, "version", missing)
    with pytest.raises(
        ValueError,
        match="drawn from matplotlib's fonts, and it is not installed: pip install matplotlib",
    ):
        open_glyphs()


def test_drawing_uses_the_fonts_in_turn():
    one, two = (
        draw_samples(Glyph("g", fonts))
        for fonts in (("DejaVuSans",), ("DejaVuSans", "STIXGeneral"))
    )
    assert np.array_equal(one[0::2], two[0::2])
    assert not any(np.array_equal(a, b) for a, b in zip(one[1::2], two[1::2], strict=True))


def test_other_sizes_and_channels_for_nets_made_for_other_data(cache, monkeypatch):
    few = [Glyph(c, ("DejaVuSans",)) for c in "ABCDEFGH"]
    monkeypatch.setattr(glyphs, "choose_glyphs", lambda: few)
    found = open_glyphs(size=42, channels=3, cache=cache)
    assert found.images.shape == (8 * SAMPLES, 42, 42, 3)
    assert (found.images[..., 0] == found.images[..., 2]).all()
