/** Types of remote.js: a model in a Worker (worker.js). */
import type { Model, Prediction, Sample, State, Step } from "./pmeta.js";

export type Facts = Pick<
  Model,
  "names" | "outputs" | "rows" | "classes" | "steps" | "arenaBytes" | "inputShape" | "inputType" | "adapted"
>;

export declare class RemoteModel {
  /** `start` makes a Worker of worker.js; `wasm` are the bytes of pmeta.wasm. */
  constructor(start: () => Worker, wasm: Uint8Array);
  /** Open a .pmeta file. Where it fails, the model that was open stays. */
  open(file: Uint8Array): Promise<Facts>;
  /** A picture as a sample; an ImageBitmap is handed over. */
  picture(source: Blob | ImageBitmap): Promise<Uint8Array>;
  /** The samples in a CSV or JSON file. */
  readings(file: File): Promise<Float32Array[]>;
  /** K steps, with `mirror` from mirrored pictures too; returns the state behind them. */
  adapt(samples: Sample[], labels: number[], onStep?: (step: Step) => void, mirror?: boolean): Promise<State>;
  predict(samples: Sample[]): Promise<Prediction[]>;
  scores(samples: Sample[]): Promise<Float32Array[]>;
  /** Take back a state, or with null the weights of the file. */
  restore(state: State | null): Promise<void>;
  save(names: string[]): Promise<Uint8Array>;
  highWaterBytes(): Promise<number>;
  /** End the Worker in the middle of whatever it does; the next open starts another. */
  stop(): void;
}
