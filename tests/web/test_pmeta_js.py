"""pmeta.js in Node: the native engine's numbers, files that go both ways, clear errors."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pmeta import device, zoo
from pmeta.device.model_file import completed, facts, seal, temperatures, with_facts
from pmeta.web import build
from tests.device.test_engine_files import slow
from tests.helpers import node
from tests.helpers.pictures import scenes

pytestmark = pytest.mark.skipif(node.NODE is None, reason="no node")
JS = build.WASM.parent / "js"
MODELS = [file["file"] for name in zoo.names() for file in zoo.card(name)["files"]]
LABELS = [0, 1, 2, 0, 1, 2]
OPEN = """
const fs = await import("node:fs");
const { compile, Model, PmetaError } = await import(js + "/pmeta.js");
const engine = await compile(fs.readFileSync(js + "/../pmeta.wasm"));
const open = (path) => Model.open(engine, fs.readFileSync(path));
const model = await open(file);
const size = model.inputShape.reduce((a, b) => a * b, 1);
const all = new Uint8Array(fs.readFileSync(folder + "/x"));
const sample = (_, i) => all.subarray(i * size, (i + 1) * size);
const samples = Array.from({ length: all.length / size }, sample);
"""


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return scenes(10, 84, np.random.default_rng(0))


@pytest.fixture
def folder(tmp_path: Path, x: np.ndarray) -> Path:
    (tmp_path / "x").write_bytes(x.tobytes())
    return tmp_path


def run(script: str, folder: Path, file: str | Path = MODELS[0], **values: Any) -> Any:
    return node.run(OPEN + script, js=JS, folder=folder, file=zoo.FOLDER / file, **values)


@pytest.mark.parametrize("file", MODELS)
def test_weights_scores_and_classes_are_those_of_the_native_engine(
    file: str, folder: Path, x: np.ndarray
) -> None:
    found = run(
        """const losses = [];
        model.adapt(samples.slice(0, labels.length), labels, (step) => losses.push(step));
        fs.writeFileSync(folder + "/state", model.state().weights);
        return { losses, scores: samples.map((s) => [...model.scores(s)]),
            found: samples.map((s) => model.predict(s)), reached: model.highWaterBytes,
            arena: model.arenaBytes, classes: model.classes };""",
        folder,
        file,
        labels=LABELS,
    )
    native = device.load(zoo.FOLDER / file)
    adaptation = native.adapt(x[: len(LABELS)], LABELS)
    steps = range(0 if native.prototypes else 1, native.steps + 1)
    assert [step["step"] for step in found["losses"]] == list(steps)
    losses = [step["loss"] for step in found["losses"] if step["step"]]
    np.testing.assert_allclose(losses, adaptation.losses, atol=1e-5)
    np.testing.assert_allclose(found["scores"], native.scores(x), atol=1e-4)
    state = np.fromfile(folder / "state", np.float32)
    np.testing.assert_allclose(state, np.frombuffer(native.state(), np.float32), atol=1e-4)
    assert [f["label"] for f in found["found"]] == native.predict(x).labels.tolist()
    parts = [list(one["probabilities"].values()) for one in found["found"]]
    np.testing.assert_allclose(parts, native.probabilities(x), atol=1e-5)
    assert found["reached"] == native.high_water_bytes
    assert found["arena"] == native.arena_bytes
    assert found["classes"] == 3


def test_mirrored_pictures_are_learned_as_by_the_native_engine(folder: Path, x: np.ndarray) -> None:
    found = run(
        """model.adapt(samples.slice(0, 6), labels, () => {}, true);
        fs.writeFileSync(folder + "/state", model.state().weights);
        const { temperature } = model;
        const told = (f) => { try { f(); } catch (error) { return error.message; } };
        const message = told(() => model.adapt([[...samples[0]]], [0], () => {}, true));
        const activities = await open(sensors);
        const window = new Float32Array(activities.inputShape.reduce((a, b) => a * b, 1));
        const flat = told(() => activities.adapt([window], [0], () => {}, true));
        return { temperature, message, flat };""",
        folder,
        labels=LABELS,
        sensors=zoo.FOLDER / "sensors" / "har-conv1d.pmeta",
    )
    native = device.load(zoo.FOLDER / MODELS[0])
    native.adapt(x[:6], LABELS, mirror=True)
    state = np.fromfile(folder / "state", np.float32)
    np.testing.assert_allclose(state, np.frombuffer(native.state(), np.float32), atol=1e-4)
    assert found["temperature"] == pytest.approx(native.temperature)
    assert found["message"].startswith("a sample of this model is a Uint8Array of")
    assert "leave mirror out" in found["flat"]
    plain = device.load(zoo.FOLDER / MODELS[0])
    plain.adapt(x[:6], LABELS)
    assert np.abs(state - np.frombuffer(plain.state(), np.float32)).max() > 1e-3


def test_what_it_saves_python_loads(folder: Path, x: np.ndarray) -> None:
    scores = run(
        """model.adapt(samples.slice(0, 6), labels);
        fs.writeFileSync(folder + "/saved.pmeta", model.save(["cat", "dog", "Füchse"]));
        return samples.map((s) => [...model.scores(s)]);""",
        folder,
        labels=LABELS,
    )
    saved = device.load(folder / "saved.pmeta")
    assert saved.facts["classes"] == ["cat", "dog", "Füchse"]
    assert saved.n_classes == 3
    np.testing.assert_allclose(saved.scores(x), scores, atol=1e-4)
    fresh = device.load(zoo.FOLDER / MODELS[0])
    assert {**saved.facts, "classes": []} == fresh.facts


def test_what_python_saves_it_loads(folder: Path, x: np.ndarray) -> None:
    native = device.load(zoo.FOLDER / MODELS[0])
    native.adapt(x[:6], LABELS)
    native.save(folder / "python.pmeta")
    found = run(
        """const saved = await open(folder + "/python.pmeta");
        fs.writeFileSync(folder + "/again.pmeta", saved.save(saved.names));
        return { scores: samples.map((s) => [...saved.scores(s)]), classes: saved.classes,
            adapted: [model.adapted, saved.adapted] };""",
        folder,
    )
    np.testing.assert_allclose(found["scores"], native.scores(x), atol=1e-4)
    assert found["classes"] == 3
    assert found["adapted"] == [False, True]
    assert (folder / "again.pmeta").read_bytes() == (folder / "python.pmeta").read_bytes()


def test_a_calibrated_file_says_how_sure_it_is_as_the_native_engine_does(
    folder: Path, x: np.ndarray
) -> None:
    data = (zoo.FOLDER / MODELS[0]).read_bytes()
    calibrated = with_facts(data, completed(facts(data), "uint8", 1), [3.0, 0.5, 2.0])
    (folder / "calibrated.pmeta").write_bytes(calibrated)
    found = run(
        """const sure = () => samples.map((s) => Object.values(model.predict(s).probabilities));
        const fresh = model.temperature;
        model.adapt(samples.slice(0, 6), labels);
        const [state, before] = [model.state(), sure()];
        fs.writeFileSync(folder + "/saved.pmeta", model.save(["a", "b", "c"]));
        model.reset();
        model.restore(state);
        const saved = await open(folder + "/saved.pmeta");
        return { before, after: sure(), temperatures: [fresh, state.temperature,
            model.temperature, saved.temperature] };""",
        folder,
        folder / "calibrated.pmeta",
        labels=LABELS,
    )
    native = device.DeviceModel(calibrated)
    native.adapt(x[:6], LABELS, classes=["a", "b", "c"])  # two samples of each class
    assert native.temperature == 0.5
    assert found["temperatures"] == [2.0, 0.5, 0.5, 0.5]
    np.testing.assert_allclose(found["before"], native.probabilities(x), atol=1e-4)
    assert found["after"] == found["before"]
    native.save(folder / "python.pmeta")
    ours, theirs = [(folder / f"{name}.pmeta").read_bytes() for name in ("saved", "python")]
    assert len(ours) == len(theirs)
    assert temperatures(ours) == [0.5]
    assert facts(ours) == facts(theirs)
    np.testing.assert_allclose(
        device.DeviceModel(ours).probabilities(x), native.probabilities(x), atol=1e-4
    )


def test_state_goes_out_and_in_again(folder: Path) -> None:
    before, after, back = run(
        """const show = () => [...model.scores(samples[0])];
        const fresh = show();
        model.adapt(samples.slice(0, 6), labels);
        const state = model.state();
        const taught = show();
        model.reset();
        if (String(show()) !== String(fresh)) throw new Error("reset");
        model.restore(state);
        return [fresh, taught, show()];""",
        folder,
        labels=LABELS,
    )
    assert before != after
    assert after == back


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("model.adapt([], [])", "as many labels as samples, at least one, got 0 and 0"),
        ("model.adapt(samples.slice(0, 2), [0])", "got 2 and 1"),
        ("model.adapt(samples.slice(0, 1), [5])", "a whole number from 0 to 4, got 5"),
        ("model.adapt(samples.slice(0, 1), [0.5])", "got 0.5"),
        (
            "model.adapt(samples.slice(0, 2), [0, 2])",
            "needs a sample of every class, got 2 of the 3",
        ),
        ("model.save(['one'])", "tells 5 classes apart, got 1 names"),
        ("model.scores(new Uint8Array(7))", "a Uint8Array of 21168 numbers, got Uint8Array of 7"),
        ("model.scores(new Float32Array(21168))", "got Float32Array of 21168"),
        ("model.scores()", "got undefined of undefined"),
        ("model.restore({ weights: new Uint8Array(3), classes: 2 })", "got 3: it is another"),
    ],
)
def test_mistakes_are_told(call: str, message: str, folder: Path) -> None:
    found = run(
        """try { eval(call); }
        catch (error) { return [error instanceof PmetaError, error.message]; }
        return "nothing was thrown";""",
        folder,
        call=call,
    )
    assert found[0]
    assert message in found[1]


def test_a_failed_adaptation_leaves_the_meta_trained_weights(folder: Path) -> None:
    same = run(
        """const fresh = String(model.scores(samples[0]));
        try { model.adapt([samples[0], samples[1], new Uint8Array(7)], [0, 1, 2]); }
        catch { /* meant */ }
        const after = String(model.scores(samples[0]));
        model.adapt(samples.slice(0, 3), [0, 1, 2]);
        return fresh === after;""",
        folder,
    )
    assert same


def damage(data: bytes) -> dict[str, bytes]:
    """Files that must be refused, by the word that says why."""
    huge = bytearray(data)
    huge[24:32] = b"\xfc\xff\xff\xff" * 2  # arena_bytes, infer_bytes
    meta = data.replace(b'"input_shape":[3,84,84]', b'"input_shape":[3,84,85]')
    return {
        "not a pmeta model": b"hello, this is text",
        "ends before the length": data[:5000],
        "checksum": data[:-9] + b"x" + data[-8:],
        "does not fit": seal(bytes(huge)),
        "names and shapes": seal(meta),
        "more work": slow(),
    }


@pytest.mark.parametrize(
    "why",
    [
        "not a pmeta model",
        "ends before the length",
        "checksum",
        "does not fit",
        "names and shapes",
        "more work",
    ],
)
def test_hostile_files_are_refused(why: str, folder: Path) -> None:
    bad = damage((zoo.FOLDER / MODELS[0]).read_bytes())[why]
    (folder / "bad.pmeta").write_bytes(bad)
    found = run(
        """try { await open(folder + "/bad.pmeta"); }
        catch (error) { return [error instanceof PmetaError, error.message]; }
        return "it was opened";""",
        folder,
    )
    assert found[0], found
    assert why in found[1]


def test_mutated_files_are_refused_or_run_without_harm(folder: Path) -> None:
    """The WebAssembly is its own cage: whatever it does, an error that can be told comes out, or
    numbers."""
    data = bytearray((zoo.FOLDER / MODELS[0]).read_bytes())
    rng = np.random.default_rng(1)
    for i in range(40):
        bad = bytearray(data)
        for _ in range(3):
            at = int(rng.integers(24, 124)) if i % 2 else int(rng.integers(24, len(data)))
            bad[at] = int(rng.integers(256))
        (folder / f"{i}.pmeta").write_bytes(seal(bytes(bad)))
    opened = run(
        """let opened = 0;
        const told = (e) => e instanceof PmetaError || e instanceof WebAssembly.RuntimeError;
        for (let i = 0; i < 40; i++) {
            try {
                const one = await open(`${folder}/${i}.pmeta`);
                opened++;
                one.scores(samples[0]);
            } catch (error) { if (!told(error)) throw error; }
        }
        model.scores(samples[0]);
        return opened;""",
        folder,
    )
    assert 0 < opened < 40


def test_types_name_what_the_modules_export() -> None:
    for module in ("pmeta", "pictures", "remote"):
        code = (JS / f"{module}.js").read_text(encoding="utf-8")
        types = (JS / f"{module}.d.ts").read_text(encoding="utf-8")
        exports = r"^export (?:declare )?(?:async )?(?:function|class) (\w+)"
        assert re.findall(exports, code, re.M) == re.findall(exports, types, re.M)
        members = r"^  (?:static |async |get |readonly )*([a-z]\w*)(?:\(|:| *\()"
        public = set(re.findall(members, code, re.M)) - {"constructor", "if", "for", "return"}
        assert public <= set(re.findall(members, types, re.M)) | {"constructor"}, module
