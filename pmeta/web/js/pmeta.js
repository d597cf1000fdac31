/** pmeta in JavaScript: the C engine (pmeta.h) as WebAssembly, with typed arrays in and out.
 *
 *     const engine = await compile(wasmBytes);
 *     const model = await Model.open(engine, fileBytes);
 *     model.adapt(samples, labels);              // samples: one Uint8Array or Float32Array each
 *     model.predict(sample);                     // { label, probabilities }
 *     const file = model.save(["cat", "dog"]);   // a .pmeta that `pmeta adapt` and C read too
 *
 * Every call runs at once and blocks; in a page it belongs in a Worker (worker.js). */

/** The first fields of `pmeta_model` in pmeta.h, in their order; 32 bits each. */
const FIELDS = [
  "arena_bytes", "infer_bytes", "state_bytes", "input_bytes", "input_type", "outputs", "rows", "steps", "batch", "classes",
  "file", "arena", "file_bytes", "arena_given", "high_water", "support",
];
const MODEL_BYTES = 256; // room for the struct: more than it takes
const PAGE = 65536;
const INPUT_TYPES = ["float32", "uint8"];
/** Of the header in docs/reference/format.md. */
const AT = { fileBytes: 16, crc: 20, crcFrom: 24, copies: 76, atCopies: 104, atFacts: 108, factsBytes: 112,
    classes: 120, atTemperatures: 124 };

/** A call that the engine refused, or a file that it cannot take; the message is for the user. */
export class PmetaError extends Error {}

/** Compile the engine once; as many models as you like open with it. */
export async function compile(wasm) {
  return WebAssembly.compile(wasm);
}

export class Model {
  /** Open the bytes of a .pmeta file, with an engine and a memory of its own. */
  static async open(engine, file) {
    const bytes = file instanceof ArrayBuffer ? new Uint8Array(file) : file;
    return new Model(await WebAssembly.instantiate(engine, {}), bytes);
  }

  constructor(instance, file) {
    this._c = instance.exports;
    this._end = this._c.__heap_base.value;
    this._m = this._take(MODEL_BYTES);
    this._file = this._take(file.length);
    this._bytes(this._file, file.length).set(file);
    this._call("pmeta_open", this._file, file.length);
    this.facts = this._readFacts();
    const arena = this._take(this.arenaBytes);
    this._call("pmeta_start", arena, this.arenaBytes);
    this._sample = this._take(this._field("input_bytes"));
    this._output = this._take(4 * this._field("outputs"));
    this._state = this._take(this.stateBytes);
    this._ownClasses = this.classes;
  }

  /** Bytes that an adaptation takes, planned when the model was exported. */
  get arenaBytes() { return this._field("arena_bytes"); }
  /** Bytes of the weights under adaptation, a part of the arena. */
  get stateBytes() { return this._field("state_bytes"); }
  /** Bytes of the arena that were reached so far. */
  get highWaterBytes() { return this._c.pmeta_high_water(this._m); }
  /** K, the steps of an adaptation. */
  get steps() { return this._field("steps") - Number(this.prototypes); }
  /** Whether the head is made from the samples, in a first pass over them. */
  get prototypes() { return this.facts.prototypes === true; }
  /** What `predict` divides scores by to say how sure it is; 1 where the file is not calibrated. */
  get temperature() { return this._restored ?? this._c.pmeta_temperature(this._m); }
  /** The most classes that the model tells apart. */
  get outputs() { return this._field("outputs") / this.rows; }
  /** Rows of output for a sample: 1 for a classifier, more for a policy. */
  get rows() { return this._field("rows"); }
  /** The classes it tells apart now: the first outputs. */
  get classes() { return this._field("classes"); }
  /** "float32" or "uint8". */
  get inputType() { return INPUT_TYPES[this._field("input_type")]; }
  /** Of one sample, as (channels, height, width). */
  get inputShape() { return this.facts.input_shape; }
  /** The names that the file gives its classes; there may be none. */
  get names() {
    const names = this.facts.classes;
    return Array.isArray(names) && names.every((name) => typeof name === "string") ? names : [];
  }
  /** Whether the file was saved behind an adaptation. */
  get adapted() { return this._word(AT.classes) > 0; }

  /** Forget earlier adaptations and take K steps on samples with labels 0, 1, ... ; `onStep({ step, loss, milliseconds })`
   * is told of each, and as step 0 of the pass that makes prototypes. With `mirror` each picture is fed mirrored left-right
   * too, in twice the time. Where it fails, the model is as it was meta-trained. */
  adapt(samples, labels, onStep = () => {}, mirror = false) {
    const classes = this._checkSupport(samples, labels);
    const fed = mirror ? this._withMirrored(samples) : samples;
    const copies = fed.length / samples.length;
    this.reset();
    try {
      this._call("pmeta_classes", this.facts.repeated === true ? classes : this.outputs);
      this._call("pmeta_begin", fed.length);
      for (let step = this.prototypes ? 0 : 1; step <= this.steps; step++) {
        const start = performance.now();
        let loss = 0;
        fed.forEach((sample, i) => { loss += this._feed(sample, labels[Math.floor(i / copies)]) / fed.length; });
        this._call("pmeta_step");
        onStep({ step, loss, milliseconds: performance.now() - start });
      }
      this._call("pmeta_classes", classes);
      this._setField("support", samples.length); // for the temperature: copies make a model hardly surer
    } catch (error) {
      this.reset();
      throw error;
    }
  }

  /** The network's output for a sample: a Float32Array of `outputs` numbers (times the rows of a policy). */
  scores(sample) {
    this._put(sample);
    this._call("pmeta_infer", this._sample, this._output);
    return this._floats(this._output, this._field("outputs")).slice();
  }

  /** The most likely class of a sample, and the probability of each. */
  predict(sample) {
    const scores = this.scores(sample).subarray(0, this.classes);
    const label = scores.indexOf(Math.max(...scores));
    const { temperature } = this;
    const parts = Float32Array.from(scores, (score) => Math.exp((score - scores[label]) / temperature));
    const total = parts.reduce((sum, part) => sum + part, 0);
    return { label, probabilities: parts.map((part) => part / total) };
  }

  /** Back to the weights of the file, and to its classes. */
  reset() {
    this._call("pmeta_reset");
    this._restored = undefined;
    if (this.rows === 1) this._call("pmeta_classes", this._ownClasses);
  }

  /** The adapted weights, the number of classes and the temperature, for `restore`. */
  state() {
    this._call("pmeta_read_state", this._state, this.stateBytes);
    const weights = this._bytes(this._state, this.stateBytes).slice();
    return { weights, classes: this.classes, temperature: this.temperature };
  }

  /** Take back what `state` gave. */
  restore({ weights, classes, temperature }) {
    if (weights.length !== this.stateBytes) {
      throw new PmetaError(`the state of this model has ${this.stateBytes} bytes, got ${weights.length}: it is another model's.`);
    }
    this._bytes(this._state, weights.length).set(weights);
    this._call("pmeta_write_state", this._state, weights.length);
    this._call("pmeta_classes", classes);
    this._restored = temperature;
  }

  /** A .pmeta file whose weights are the adapted ones, with the names of its classes. */
  save(names = []) {
    const { weights, classes, temperature } = this.state();
    if (names.length && names.length !== classes) {
      throw new PmetaError(`the model tells ${classes} classes apart, got ${names.length} names: give one for each, or none.`);
    }
    const end = this._endOfTables();
    const text = new TextEncoder().encode(JSON.stringify({ ...this.facts, classes: names }));
    const isCalibrated = this._word(AT.atTemperatures) > 0;
    const atFacts = end + (isCalibrated ? 8 : 0); // of the temperatures the one of the adaptation is left
    const file = new Uint8Array(atFacts + text.length + (-text.length & 3)).fill(32);
    file.set(this._bytes(this._file, end));
    file.set(text, atFacts);
    for (let i = 0; i < this._word(AT.copies); i++) {
      const [from, to, length] = [0, 4, 8].map((part) => this._word(this._word(AT.atCopies) + 12 * i + part));
      file.set(weights.subarray(to, to + length), from);
    }
    const words = new DataView(file.buffer);
    const set = (where, value) => words.setUint32(where, value, true);
    set(AT.classes, classes);
    set(AT.atTemperatures, isCalibrated ? end : 0);
    if (isCalibrated) set(end, 1);
    if (isCalibrated) words.setFloat32(end + 4, temperature, true);
    set(AT.atFacts, atFacts);
    set(AT.factsBytes, text.length);
    set(AT.fileBytes, file.length);
    set(AT.crc, this._crc(file.subarray(AT.crcFrom)));
    return file;
  }

  /** The weights under adaptation, by name, as they lie in PyTorch. */
  weights() {
    const { weights } = this.state();
    let at = 0;
    return Object.fromEntries(this.facts.state.map(({ name, shape }) => {
      const values = new Float32Array(weights.buffer, at, product(shape));
      at += values.byteLength;
      return [name, values];
    }));
  }

  // ---- below: the C side ----

  /** Call the engine; its first argument is always the model. */
  _call(name, ...args) {
    const status = this._c[name](this._m, ...args);
    if (status) throw new PmetaError(`${this._text(this._c.pmeta_message(status))}.`);
  }

  _field(name) { return new DataView(this._c.memory.buffer).getUint32(this._m + 4 * FIELDS.indexOf(name), true); }

  _setField(name, value) { new DataView(this._c.memory.buffer).setUint32(this._m + 4 * FIELDS.indexOf(name), value, true); }

  /** A word of the file, by its offset. */
  _word(at) { return new DataView(this._c.memory.buffer).getUint32(this._file + at, true); }

  /** Where the temperatures and the facts begin, which stand last and are written again by `save`. */
  _endOfTables() {
    const temperatures = this._word(AT.atTemperatures);
    const tail = [[this._word(AT.atFacts), this._word(AT.factsBytes)]];
    if (temperatures) tail.push([temperatures, 4 + 4 * this._word(temperatures)]);
    const starts = new Map(tail.filter(([, bytes]) => bytes).map(([at, bytes]) => [at + bytes + (-bytes & 3), at]));
    let end = this._word(AT.fileBytes);
    while (starts.has(end)) end = starts.get(end);
    return end;
  }

  _bytes(at, n) { return new Uint8Array(this._c.memory.buffer, at, n); }

  _floats(at, n) { return new Float32Array(this._c.memory.buffer, at, n); }

  /** So many bytes of memory, aligned; they stay taken as long as the model lives. */
  _take(bytes) {
    const at = (this._end + 15) & ~15;
    const missing = at + bytes - this._c.memory.buffer.byteLength;
    try {
      if (missing > 0) this._c.memory.grow(Math.ceil(missing / PAGE));
    } catch {
      throw new PmetaError(`the model asks for ${bytes} bytes of memory, more than this browser gives.`);
    }
    this._end = at + bytes;
    return at;
  }

  _text(at) {
    const bytes = this._bytes(at, this._c.memory.buffer.byteLength - at);
    return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
  }

  _crc(bytes) {
    const before = this._end;
    const at = this._take(bytes.length);
    this._bytes(at, bytes.length).set(bytes);
    this._end = before; // given back
    return this._c.pmeta_crc32(at, bytes.length) >>> 0;
  }

  /** Copy a sample into the engine's memory. */
  _put(sample) {
    const type = this._checkSample(sample);
    new type(this._c.memory.buffer, this._sample, sample.length).set(sample);
  }

  /** The type of array that a sample has to be, which this one is. */
  _checkSample(sample) {
    const type = this.inputType === "uint8" ? Uint8Array : Float32Array;
    const length = product(this.inputShape);
    const clamped = type === Uint8Array && sample instanceof Uint8ClampedArray;
    if (!(sample instanceof type || clamped) || sample.length !== length) {
      const got = `${sample?.constructor?.name} of ${sample?.length}`;
      throw new PmetaError(`a sample of this model is a ${type.name} of ${length} numbers, got ${got}.`);
    }
    if (type === Float32Array && !sample.every(Number.isFinite)) throw new PmetaError("a sample has finite numbers only: mend it.");
    return type;
  }

  _feed(sample, label) {
    this._put(sample);
    this._call("pmeta_feed", this._sample, label, this._output);
    return this._floats(this._output, 1)[0];
  }

  /** Pictures, each followed by its copy mirrored left-right. */
  _withMirrored(samples) {
    if (this.inputShape.length !== 3) {
      const shape = this.inputShape.join(", ");
      throw new PmetaError(`pictures (channels, height, width) are mirrored, the model reads samples of shape (${shape}): leave mirror out.`);
    }
    samples.forEach((sample) => this._checkSample(sample));
    return samples.flatMap((sample) => [sample, mirrored(sample, this.inputShape.at(-1))]);
  }

  _checkSupport(samples, labels) {
    if (this.rows !== 1) throw new PmetaError("labels are for a classifier, this model is a policy.");
    if (samples.length !== labels.length || samples.length === 0) {
      throw new PmetaError(`there are as many labels as samples, at least one, got ${samples.length} and ${labels.length}.`);
    }
    const wrong = labels.find((label) => !Number.isInteger(label) || label < 0 || label >= this.outputs);
    if (wrong !== undefined) throw new PmetaError(`a label is a whole number from 0 to ${this.outputs - 1}, got ${wrong}.`);
    const classes = labels.reduce((most, label) => Math.max(most, label + 1), 0);
    const found = new Set(labels).size;
    if (this.prototypes && found < classes) {
      throw new PmetaError(`a head from prototypes needs a sample of every class, got ${found} of the ${classes} classes: number them without gaps.`);
    }
    return classes;
  }

  /** What the file says of itself in JSON. The engine does not read it, so it is checked against the header here. */
  _readFacts() {
    try {
      const text = this._bytes(this._file + this._word(AT.atFacts), this._word(AT.factsBytes)).slice();
      const facts = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(text));
      const shapes = [facts.input_shape, ...facts.state.map((entry) => entry.shape)];
      const sizes = shapes.flat().every((n) => Number.isInteger(n) && n > 0);
      const [sample, ...weights] = shapes.map(product);
      const state = 4 * weights.reduce((sum, n) => sum + n, 0);
      const fits = sample * (this.inputType === "uint8" ? 1 : 4) === this._field("input_bytes");
      const named = facts.state.every((entry) => typeof entry.name === "string");
      if (sizes && fits && named && state <= this.stateBytes && this.stateBytes < state + 16) return facts;
    } catch { /* told below */ }
    throw new PmetaError("the names and shapes in the file do not fit its header: write it again with pmeta export or pmeta adapt --save.");
  }
}

function mirrored(sample, width) {
  const copy = sample.slice();
  for (let at = 0; at < copy.length; at += width) copy.subarray(at, at + width).reverse();
  return copy;
}

function product(shape) { return shape.reduce((size, n) => size * n, 1); }
