/** A model in a Worker: takes { id, name, args }, answers { id, result } or { id, error }, and { id, step } on the way. */
import { compile, Model } from "./pmeta.js";
import { readPicture } from "./pictures.js";
import { readReadings } from "./readings.js";

let engine;
let model;

const CALLS = {
  async open(file, wasm) {
    engine ??= await compile(wasm);
    model = await Model.open(engine, file);
    const { names, outputs, rows, classes, steps, arenaBytes, inputShape, inputType, adapted } = model;
    return { names, outputs, rows, classes, steps, arenaBytes, inputShape, inputType, adapted };
  },
  picture: (source) => readPicture(source, model.inputShape),
  async readings(file) { return readReadings(await file.text(), file.name, model.inputShape); },
  adapt(samples, labels, mirror, onStep) {
    model.adapt(samples, labels, onStep, mirror);
    return model.state();
  },
  predict: (samples) => samples.map((sample) => model.predict(sample)),
  scores: (samples) => samples.map((sample) => model.scores(sample)),
  restore: (state) => (state ? model.restore(state) : model.reset()),
  save: (names) => model.save(names),
  highWaterBytes: () => model.highWaterBytes,
};

self.onmessage = async ({ data: { id, name, args } }) => {
  try {
    const onStep = (step) => self.postMessage({ id, step });
    const result = await CALLS[name](...args, ...(name === "adapt" ? [onStep] : []));
    self.postMessage({ id, result });
  } catch (error) {
    self.postMessage({ id, error: error.message });
  }
};
