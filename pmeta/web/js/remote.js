/** A model in a Worker, from the page's side: every call is a promise, and the page stays alive meanwhile.
 *
 *     const model = new RemoteModel(() => new Worker("worker.js", { type: "module" }), wasmBytes);
 *     await model.open(fileBytes);
 *     await model.adapt(samples, labels, ({ step, loss }) => ...);
 *     const [{ label, probabilities }] = await model.predict([sample]); */
export class RemoteModel {
  constructor(start, wasm) {
    this._start = start;
    this._wasm = wasm;
    this._waiting = new Map();
    this._number = 0;
  }

  /** Open a .pmeta file; returns its facts. */
  async open(file) {
    this._worker ??= this._listen(this._start());
    return this._call("open", [file, this._wasm]);
  }

  /** A picture (Blob, or an ImageBitmap, which is handed over) as a sample. */
  picture(source) { return this._call("picture", [source], { hand: source instanceof ImageBitmap ? [source] : [] }); }
  /** The samples in a CSV or JSON file. */
  readings(file) { return this._call("readings", [file]); }
  /** K steps, with `mirror` from mirrored pictures too; returns the state behind them. */
  adapt(samples, labels, onStep, mirror = false) { return this._call("adapt", [samples, labels, mirror], { onStep }); }
  predict(samples) { return this._call("predict", [samples]); }
  scores(samples) { return this._call("scores", [samples]); }
  /** Take back a state, or with null the weights of the file. */
  restore(state) { return this._call("restore", [state]); }
  save(names) { return this._call("save", [names]); }
  highWaterBytes() { return this._call("highWaterBytes", []); }

  /** End the Worker in the middle of whatever it does; the next `open` starts another. */
  stop() {
    this._worker?.terminate();
    this._worker = undefined;
    for (const { no } of this._waiting.values()) no(new Error("it was stopped"));
    this._waiting.clear();
  }

  _call(name, args, { hand = [], onStep } = {}) {
    return new Promise((yes, no) => {
      const id = ++this._number;
      this._waiting.set(id, { yes, no, onStep });
      this._worker.postMessage({ id, name, args }, hand);
    });
  }

  _listen(worker) {
    worker.onmessage = ({ data: { id, result, error, step } }) => {
      const waiting = this._waiting.get(id);
      if (step) return waiting?.onStep?.(step);
      this._waiting.delete(id);
      return error === undefined ? waiting?.yes(result) : waiting?.no(new Error(error));
    };
    worker.onerror = (event) => {
      for (const { no } of this._waiting.values()) no(new Error(event.message || "the Worker did not start"));
      this._waiting.clear();
    };
    return worker;
  }
}
