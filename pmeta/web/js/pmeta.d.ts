/** Types of pmeta.js: the C engine as WebAssembly. */

/** A call that the engine refused, or a file that it cannot take; the message is for the user. */
export declare class PmetaError extends Error {}

/** Compile pmeta.wasm once; as many models as you like open with it. */
export declare function compile(wasm: BufferSource): Promise<WebAssembly.Module>;

/** One sample, (channels, height, width): Uint8Array or Uint8ClampedArray where inputType is "uint8", else Float32Array. */
export type Sample = Uint8Array | Uint8ClampedArray | Float32Array;

export interface Step {
  /** 1 to K; 0 for the pass that makes prototypes. */
  step: number;
  /** Mean loss of the samples before the step. */
  loss: number;
  milliseconds: number;
}

export interface Prediction {
  /** The most likely class. */
  label: number;
  /** Of each class; they sum to 1. */
  probabilities: Float32Array;
}

export interface State {
  /** The bytes of the adapted weights. */
  weights: Uint8Array;
  classes: number;
  /** Of the adaptation; without it the file's. */
  temperature?: number;
}

export declare class Model {
  /** Open the bytes of a .pmeta file. Throws PmetaError where they are none. */
  static open(engine: WebAssembly.Module, file: Uint8Array | ArrayBuffer): Promise<Model>;

  /** Bytes that an adaptation takes, planned when the model was exported. */
  readonly arenaBytes: number;
  /** Bytes of the weights under adaptation, a part of the arena. */
  readonly stateBytes: number;
  /** Bytes of the arena that were reached so far. */
  readonly highWaterBytes: number;
  /** K, the steps of an adaptation. */
  readonly steps: number;
  /** Whether the head is made from the samples, in a first pass over them. */
  readonly prototypes: boolean;
  /** What predict divides scores by to say how sure it is. */
  readonly temperature: number;
  /** The most classes that the model tells apart. */
  readonly outputs: number;
  /** Rows of output for a sample: 1 for a classifier, more for a policy. */
  readonly rows: number;
  /** The classes it tells apart now: the first outputs. */
  readonly classes: number;
  readonly inputType: "uint8" | "float32";
  /** Of one sample. */
  readonly inputShape: number[];
  /** The names that the file gives its classes; there may be none. */
  readonly names: string[];
  /** Whether the file was saved behind an adaptation. */
  readonly adapted: boolean;
  /** What the file says of itself in JSON, see docs/reference/format.md. */
  readonly facts: Record<string, unknown>;

  /** Forget earlier adaptations and take K steps; with `mirror` each picture is fed mirrored left-right too. */
  adapt(samples: Sample[], labels: number[], onStep?: (step: Step) => void, mirror?: boolean): void;
  /** The network's output for a sample. */
  scores(sample: Sample): Float32Array;
  /** The most likely class of a sample, and the probability of each. */
  predict(sample: Sample): Prediction;
  /** Back to the weights and classes of the file. */
  reset(): void;
  /** The adapted weights, for restore. */
  state(): State;
  restore(state: State): void;
  /** A .pmeta file whose weights are the adapted ones; names: one for each class, or none. */
  save(names?: string[]): Uint8Array;
  /** The weights under adaptation, by name. */
  weights(): Record<string, Float32Array>;
}
