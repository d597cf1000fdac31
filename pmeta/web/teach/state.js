/** What the page holds, as values that are never changed in place: each change gives a new one, and undo takes the old one back. */

/** Okabe and Ito's colours, which colour-blind people tell apart. */
const COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a6d00", "#777777"];
const MOST_UNDOS = 50;
let numbers = 0;

export function newClass(name, samples = []) { return { id: ++numbers, name, samples }; }

export function colorOf(index) { return COLORS[index % COLORS.length]; }

/** Which of a class's samples are put aside to test: every n-th. */
export function isAside(index, every) { return every > 0 && index % every === every - 1; }

/** The first name of its kind that no class has. */
export function freeName(classes) {
  const taken = new Set(classes.map(({ name }) => name));
  for (let i = classes.length + 1; ; i++) if (!taken.has(`Class ${i}`)) return `Class ${i}`;
}

/** The names of the classes that were taught, as they are called now. */
export function namesOf({ classes, taught }) {
  return taught.classes.map(({ id, name }) => classes.find((one) => one.id === id)?.name ?? name);
}

/** The samples to learn from and those put aside, with their labels. */
export function split(classes, every) {
  const found = { learn: { samples: [], labels: [] }, aside: { samples: [], labels: [] } };
  classes.forEach(({ samples }, label) => samples.forEach((sample, i) => {
    const part = isAside(i, every) ? found.aside : found.learn;
    part.samples.push(sample);
    part.labels.push(label);
  }));
  return found;
}

/** Why these classes cannot be taught; null if they can. */
export function obstacle(classes, things) {
  const empty = classes.filter(({ samples }) => !samples.length).map(({ name }) => name);
  const names = classes.map(({ name }) => name);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (classes.length < 2) return "Classes are told apart, so there are two or more: add one.";
  if (empty.length) return `Each class is learned from ${things}: add some to ${empty.join(", ")}, or take it away.`;
  return twice === undefined ? null : `Each class has a name of its own: two are called ${twice}.`;
}

export class History {
  constructor(now, onChange) {
    this.now = now;
    this._past = [];
    this._onChange = onChange;
  }

  get canUndo() { return this._past.length > 0; }

  change(part) {
    this._past = [...this._past, this.now].slice(-MOST_UNDOS);
    this.now = { ...this.now, ...part };
    this._onChange();
  }

  undo() {
    if (!this.canUndo) return;
    this.now = this._past.pop();
    this._onChange();
  }
}
