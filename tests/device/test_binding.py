"""The binding: what it keeps, refuses and promises besides the weights."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from pmeta import device
from pmeta.device import model_file as flatfile
from tests.helpers.device_models import case


def test_adapting_again_starts_from_the_meta_trained_weights() -> None:
    c = case("mlp", "maml", seed=10)
    model = c.device()
    before = model.weights()
    for name, w in before.items():
        assert np.array_equal(w, c.meta.w[name].numpy())
    losses = model.adapt(c.raw, c.y.numpy()).losses
    once = model.state()
    assert losses[-1] < losses[0]
    model.adapt(c.raw, c.y.numpy())
    assert model.state() == once
    model.reset()
    assert all(np.array_equal(w, before[name]) for name, w in model.weights().items())
    model.restore(once)
    assert model.state() == once


def test_a_saved_model_begins_where_the_adapted_one_ended(tmp_path) -> None:
    c = case("4conv", "pmeta", seed=11, live=["conv4", "fc"])
    model = c.device()
    model.adapt(c.raw, c.y.numpy())
    model.save(tmp_path / "adapted.pmeta")
    again = device.load(tmp_path / "adapted.pmeta")
    assert np.array_equal(again.scores(c.raw), model.scores(c.raw))


def test_the_arena_that_is_given_is_all_that_is_written() -> None:
    c = case("4conv", "pmeta", seed=12)
    block = np.full(c.exported.arena_bytes + 256, 0xA5, np.uint8)
    model = device.DeviceModel(c.exported.data, arena=block[128:-128])
    model.adapt(c.raw, c.y.numpy())
    assert (block[:128] == 0xA5).all()
    assert (block[-128:] == 0xA5).all()


def test_damaged_files_are_refused_with_the_reason() -> None:
    data = case("mlp", "maml", seed=13).exported.data

    def refuses(damaged: bytes, reason: str) -> None:
        with pytest.raises(device.EngineError, match=reason):
            device.DeviceModel(damaged)

    refuses(b"PK\x03\x04" + data[4:], "not a pmeta model")
    refuses(data[:-8], "ends before")
    refuses(data[:40], "ends before")
    refuses(b"", "ends before")
    refuses(data[:200] + bytes([data[200] ^ 1]) + data[201:], "checksum")
    newer = bytes([flatfile.VERSION + 1])
    refuses(data[:8] + newer + data[9:], "another format version")
    refuses(data[:12] + data[12:16][::-1] + data[16:], "little-endian")
    header = flatfile.header(data)
    at = header["at_instrs"] + 2 * 4
    refuses(flatfile.seal(data[:at] + b"\xf0\xff\xff\x0f" + data[at + 4 :]), "does not fit")


def test_what_a_file_says_of_itself_fits_its_header() -> None:
    """Else the engine, which goes by the header, would read beyond samples of that shape."""
    data = case("mlp", "maml", seed=13).exported.data
    at, size = (flatfile.header(data)[name] for name in ("at_facts", "facts_bytes"))
    right = {**flatfile.facts(data), "method": ""}  # room for longer numbers
    first, *rest = right["state"]
    for wrong in (
        *("{", [], {}, "[["),
        *(
            {**right, "input_shape": shape}
            for shape in ([1], [-1, -20], [20.0], "x", None, [right["input_shape"]])
        ),
        *(
            {**right, "state": state}
            for state in ([], rest, [{**first, "shape": [1]}, *rest], [{"name": "w"}], 5)
        ),
    ):
        text = (
            wrong.encode()
            if isinstance(wrong, str)
            else json.dumps(wrong, separators=(",", ":")).encode()
        )
        assert len(text) <= size
        with pytest.raises(
            device.EngineError, match=r"the file( says of itself)? .*: write it again with `pmeta"
        ):
            device.DeviceModel(flatfile.seal(data[:at] + text.ljust(size) + data[at + size :]))


def test_every_word_of_the_tables_is_checked_or_harmless() -> None:
    """Each word in turn set to a hostile value: the model is refused, or runs within its arena."""
    c = case("mlp", "pmeta", seed=14)
    data = c.exported.data
    h = flatfile.header(data)
    refused = 0
    for at in [*range(24, 128, 4), *range(h["at_steps"], h["at_facts"], 4)]:
        for word in (b"\xff\xff\xff\x7f", b"\xfc\xff\xff\xff"):
            try:
                model = device.DeviceModel(
                    flatfile.seal(data[:at] + word + data[at + 4 :]),
                    arena=np.zeros(1 << 20, np.uint8),
                )
                model.scores(c.raw)
            except (device.EngineError, ValueError):
                refused += 1
    assert refused > 300


def test_wrong_calls_are_refused() -> None:
    c = case("mlp", "maml", seed=15)
    model = c.device()
    with pytest.raises(ValueError, match="of shape \\(20,\\), which are no numbers"):
        model.predict(np.full(c.raw.shape, "x"))
    with pytest.raises(ValueError, match="reads float32 samples of shape"):
        model.predict(c.raw[:, :-1])
    with pytest.raises(ValueError, match="as many labels as samples"):
        model.adapt(c.raw, [0, 1])
    for labels in ([9] * 5, [-1] * 5, [0.5] * 5, [[0]] * 5):
        with pytest.raises(
            ValueError, match="one of the model's classes, a whole number from 0 to 4"
        ):
            model.adapt(c.raw, labels)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"the gradient has the shape of the output, \(1, 5\), got \(5,\)"
    ):
        model.adapt_with(c.raw, lambda i, output: output[0])
    assert len(model.predict(c.raw)) == 5  # the model is as it was
    with pytest.raises(ValueError, match="that the engine may write"):
        device.DeviceModel(c.exported.data, arena=np.zeros(10**6, np.uint8)[::2])
    with pytest.raises(device.EngineError, match="smaller than the model needs"):
        device.DeviceModel(c.exported.data, arena=np.zeros(64, np.uint8))
    with pytest.raises(device.EngineError, match="out of order"):
        model._call("pmeta_step")
    with pytest.raises(device.EngineError, match="not the one that the model has"):
        model.restore(b"1234")


def test_numbers_that_are_none_are_refused() -> None:
    c = case("mlp", "maml", seed=15)
    model = c.device()
    scores = model.scores(c.raw)
    broken = c.raw.copy()
    broken[3, 0] = np.nan
    for call in (model.predict, lambda x: model.adapt(x, c.y.numpy())):
        with pytest.raises(
            ValueError,
            match="samples must be finite, 1 of 5 are not, the first is number 3: mend it",
        ):
            call(broken)
    with pytest.raises(device.EngineError, match="where the steps diverged, take other samples"):
        model.adapt(c.raw * np.float32(1e30), c.y.numpy())
    assert np.array_equal(model.scores(c.raw), scores)  # the model is as it was


def test_ctrl_c_ends_an_adaptation_at_the_meta_trained_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = case("mlp", "maml", seed=15)
    model = c.device()
    scores, call = model.scores(c.raw), model._call
    steps = 0

    def interrupted(name: str, *args: object) -> None:
        nonlocal steps
        call(name, *args)
        steps += name == "pmeta_step"
        if steps == 2:
            steps = 0
            raise KeyboardInterrupt

    monkeypatch.setattr(model, "_call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.adapt(c.raw, c.y.numpy())
    assert np.array_equal(model.scores(c.raw), scores)


def test_inference_needs_less_than_adaptation() -> None:
    c = case("4conv", "maml", seed=16)
    model = device.DeviceModel(c.exported.data, arena=np.zeros(c.exported.infer_bytes, np.uint8))
    with torch.no_grad():
        want = c.net.model(c.x).numpy()
    np.testing.assert_allclose(model.scores(c.raw), want, rtol=1e-3, atol=1e-4)
    with pytest.raises(device.EngineError, match="smaller than the model needs"):
        model.adapt(c.raw, c.y.numpy())


def test_the_binding_does_not_import_torch() -> None:
    code = "import sys, pmeta.device.binding; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_probabilities_are_a_softmax_at_the_temperature_of_so_many_samples(tmp_path) -> None:
    c = case("mlp", "maml", seed=19, n=12)
    data = flatfile.with_facts(
        c.exported.data, flatfile.facts(c.exported.data), [4.0, 3.0, 2.0, 1.5]
    )
    model, x = device.DeviceModel(data), c.raw
    for labels, temperature in (
        ([0, 1, 2, 3, 4], 4.0),
        ([0, 0, 1, 1, 2, 2, 2], 3.0),  # 7 samples of 3 classes: 2 of each, about
        ([0, 0, 0, 1, 1, 1], 2.0),
        ([0] * 6 + [1] * 6, 1.5),  # more than were fitted for
    ):
        model.adapt(x[: len(labels)], labels)
        assert model.temperature == temperature
        z = model.scores(x).astype(np.float64)[:, : max(labels) + 1] / temperature
        e = np.exp(z - z.max(1, keepdims=True))
        np.testing.assert_allclose(model.probabilities(x), e / e.sum(1, keepdims=True), rtol=1e-5)
    model.save(tmp_path / "saved.pmeta")
    saved = device.load(tmp_path / "saved.pmeta")
    assert saved.temperature == 1.5
    assert np.array_equal(saved.probabilities(x), model.probabilities(x))
    model.save_state(tmp_path / "state")
    again = device.DeviceModel(data)
    again.load_state(tmp_path / "state")
    assert np.array_equal(again.probabilities(x), model.probabilities(x))
    assert c.device().temperature == 1.0


def test_names_of_classes_and_how_sure(tmp_path) -> None:
    c = case("mlp", "maml", seed=20, n=6)
    model = c.device()
    assert (model.classes, model.adapted) == (("0", "1", "2", "3", "4"), False)
    model.adapt(c.raw, [0, 1, 2, 0, 1, 2], classes=["cup", "key", "mug"])
    assert model.classes == ("cup", "key", "mug")
    found = model.predict(c.raw)
    assert len(found) == 6
    np.testing.assert_array_equal(found.probabilities, model.probabilities(c.raw))
    for p, row in zip(found, found.probabilities, strict=True):
        order = np.argsort(-row)
        assert p.name == model.classes[order[0]]
        assert p.probability == row.max()
        assert p.runner_up == model.classes[order[1]]
        assert p.runner_up_probability == np.sort(row)[-2]
        assert p.unsure(p.probability + 1e-3)
        assert not p.unsure(p.probability)
    assert found.names == [p.name for p in found]
    model.save(tmp_path / "mine.pmeta", {"from": "a model"})
    saved = device.load(tmp_path / "mine.pmeta")
    assert (saved.classes, saved.adapted) == (model.classes, True)
    assert saved.facts["learned"] == {"from": "a model"}
    assert saved.predict(c.raw).names == found.names
    model.reset()
    assert model.classes == ("0", "1", "2", "3", "4")
    for wrong in (["a", "b"], ["a", "b", "a"]):
        with pytest.raises(ValueError, match="each class has a name of its own, 3 for the labels"):
            model.adapt(c.raw, [0, 1, 2, 0, 1, 2], classes=wrong)


def test_an_adapted_file_learns_on_only_on_purpose(tmp_path) -> None:
    c = case("mlp", "maml", seed=20, n=6)
    model, y = c.device(), [0, 1, 2, 0, 1, 2]
    with pytest.raises(ValueError, match="this one has not: leave `again` out"):
        model.adapt(c.raw, y, again=True)
    model.adapt(c.raw, y, classes=["cup", "key", "mug"])
    model.save(tmp_path / "mine.pmeta")
    saved = device.load(tmp_path / "mine.pmeta")
    once = saved.state()
    with pytest.raises(ValueError, match="has learned cup, key, mug: pass again=True"):
        saved.adapt(c.raw, y, classes=["cup", "key", "mug"])
    for labels, names in ((y, ["cup", "key", "pen"]), ([0, 1] * 3, ()), (y, ["key", "cup", "mug"])):
        with pytest.raises(ValueError, match="learns on with the classes that it has, cup, key"):
            saved.adapt(c.raw, labels, classes=names, again=True)
    assert saved.state() == once
    saved.adapt(c.raw, y, again=True)
    assert saved.state() != once
    assert saved.classes == ("cup", "key", "mug")


def test_numbers_of_another_type_are_cast() -> None:
    c = case("mlp", "maml", seed=20)
    model = c.device()
    want = model.scores(c.raw)
    np.testing.assert_array_equal(model.scores(c.raw.astype(np.float64)), want)
    pixels = case("depthwise-12", "maml", seed=20, raw=True)
    model = pixels.device()
    want = model.scores(pixels.raw)
    for kind in (np.int64, np.float64):
        np.testing.assert_array_equal(model.scores(pixels.raw.astype(kind)), want)
    for wrong in (pixels.raw / 255, pixels.raw.astype(int) - 256, pixels.raw.astype(int) + 256):
        with pytest.raises(ValueError, match="not all of them whole numbers from 0 to 255"):
            model.scores(wrong)


def test_mirror_feeds_each_picture_mirrored_too() -> None:
    c = case("4conv", "pmeta", seed=22, n=5)
    model, y = c.device(), c.y.numpy()
    model.adapt(c.raw, y)
    plain, high = model.state(), model.high_water_bytes
    shown: list[int] = []

    def told(passes: range) -> range:
        shown.extend(passes)
        return passes

    losses = model.adapt(c.raw, y, mirror=True, show=told).losses
    assert shown == list(range(model.steps))
    once = model.state()
    both = np.concatenate([[x, x[:, :, ::-1]] for x in c.raw])
    assert np.array_equal(model.adapt(both, y.repeat(2)).losses, losses)
    assert model.state() == once != plain
    assert model.high_water_bytes == high
    facts = flatfile.facts(c.exported.data)
    warm = device.DeviceModel(flatfile.with_facts(c.exported.data, facts, [4.0, 3.0]))
    warm.adapt(c.raw, y, mirror=True)
    assert warm.temperature == 4.0  # that of the pictures, not of twice as many
    signal = case("signal", "pmeta", seed=22)
    with pytest.raises(
        ValueError, match=r"height, width\) are mirrored, .* of shape \(4, 33\): leave"
    ):
        signal.device().adapt(signal.raw, signal.y.numpy(), mirror=True)
