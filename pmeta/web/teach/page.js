/** The page: teach, save, load, undo, forget; and the ways that files come in. */
import { RemoteModel } from "../js/remote.js";
import { Camera } from "./camera.js";
import { Cards } from "./cards.js";
import { History, namesOf, newClass, obstacle, split } from "./state.js";
import { Trial } from "./trial.js";
import { bytes, download, element } from "./view.js";

const at = (id) => document.getElementById(id);

/** What a model reads. */
const what = ({ inputType, inputShape }) => `${inputType} (${inputShape.join(", ")})`;

/** A packed file inside the page. */
async function unpack(id) {
  const packed = Uint8Array.from(atob(at(id).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function startWorker() {
  return new Worker(URL.createObjectURL(new Blob([at("worker").textContent], { type: "text/javascript" })));
}

class TeachPage {
  async start() {
    const [engine, own] = await Promise.all([unpack("engine"), unpack("model")]);
    this.remote = new RemoteModel(startWorker, engine);
    this.camera = new Camera();
    const facts = await this.remote.open(own);
    this.isBusy = false;
    this._describe(facts);
    this._history = new History({ own: { file: own, facts }, ...this._asLoaded(own, facts) }, () => this._show());
    this._cards = new Cards(this);
    this._trial = new Trial(this);
    this._wire();
    this._show();
  }

  get now() { return this._history.now; }

  /** One change, which undo takes back. Where the classes change, what was taught stays until it is taught again. */
  change(part) { this._history.change(part); }

  tell(text) {
    at("message").firstChild.textContent = text;
    at("message").hidden = !text;
  }

  /** Read files as samples and hand them on; those that cannot be read are named. */
  async take(files, handOn) {
    const samples = [];
    const wrong = [];
    for (const file of [...files]) {
      try {
        if (/\.pmeta$/i.test(file.name)) await this._load(file);
        else if (this.isPictures) samples.push(await this.remote.picture(file));
        else samples.push(...await this.remote.readings(file));
      } catch (error) {
        wrong.push(this.isPictures ? file.name : `${file.name} (${error.message})`);
      }
    }
    const what = this.isPictures ? "a picture that this browser reads (HEIC: save it as JPEG)" : "a file of numbers that fits";
    this.tell(wrong.length ? `Not ${what}: ${wrong.slice(0, 5).join(", ")}${wrong.length > 5 ? ` and ${wrong.length - 5} more` : ""}.` : "");
    handOn(samples);
  }

  /** Let an element take dropped and pasted files. */
  acceptDrops(target, handOn) {
    target.addEventListener("dragover", (event) => { event.preventDefault(); target.classList.add("over"); });
    target.addEventListener("dragleave", () => target.classList.remove("over"));
    target.addEventListener("drop", (event) => {
      target.classList.remove("over");
      if (this.isBusy) return;
      this.take(event.dataTransfer.files, handOn);
    });
    const choose = () => { this._paste = { target, handOn }; };
    target.addEventListener("focusin", choose);
    target.addEventListener("pointerdown", choose);
  }

  _describe({ inputShape, inputType, rows }) {
    this.isPictures = inputType === "uint8" && inputShape.length === 3 && [1, 3].includes(inputShape[0]);
    this.things = this.isPictures ? "pictures" : "recordings";
    this.accept = this.isPictures ? "image/*" : ".csv,.json";
    if (rows !== 1) throw new Error("this page is for classifiers, the model is a policy.");
    document.body.classList.toggle("readings", !this.isPictures);
    document.querySelectorAll(".things").forEach((part) => { part.textContent = this.things; });
    document.querySelectorAll("#live, #mirror-row").forEach((part) => { part.hidden = !this.isPictures; });
    at("try-file").accept = this.accept;
    if (!this.isPictures) {
      const [length, channels] = [inputShape.at(-1), inputShape.slice(0, -1).reduce((size, n) => size * n, 1)];
      at("show-hint").textContent = `Drop CSV files (a row for each moment, ${length} rows of ${channels} numbers to a window) or JSON.`;
    }
  }

  /** What a file brings along: its classes and weights if it was taught before, else two empty classes. */
  _asLoaded(file, facts) {
    if (!facts.adapted) return { file, facts, classes: [newClass("Class 1"), newClass("Class 2")], taught: null };
    const classes = Array.from({ length: facts.classes }, (_, i) => newClass(facts.names[i] ?? `Class ${i + 1}`));
    return { file, facts, classes, taught: { classes, state: null } };
  }

  _wire() {
    at("message").lastChild.onclick = () => this.tell("");
    at("add-class").onclick = () => this._cards.add();
    at("aside").onchange = () => this._show();
    at("start").onclick = () => (this.isBusy ? this._stop() : this._teach());
    at("undo").onclick = () => this._undo();
    at("forget").onclick = () => this._forget();
    at("load").onclick = () => at("load-file").click();
    at("load-file").onchange = ({ target }) => { this._loadFiles([...target.files]); target.value = ""; };
    at("save").onclick = async () => download(await this.remote.save(namesOf(this.now)), "taught.pmeta", "application/octet-stream");
    at("save-names").onclick = () => download(JSON.stringify(namesOf(this.now), null, 1), "taught-classes.json", "application/json");
    window.addEventListener("dragover", (event) => event.preventDefault());
    window.addEventListener("drop", (event) => { // beside the cards: a model, or nothing; never a page of its own
      event.preventDefault();
      if (!event.target.closest?.(".card")) this._loadFiles([...event.dataTransfer.files]);
    });
    window.addEventListener("paste", ({ clipboardData: { files } }) => {
      if (!files.length || this.isBusy) return;
      const into = this._paste?.target.isConnected ? this._paste.handOn : (samples) => this._cards.addSamples(this.now.classes[0]?.id, samples);
      this.take(files, into);
    });
  }

  get _every() { return Number(at("aside").value); }

  _show() {
    const { taught, classes } = this.now;
    this._cards.show(this.now, this._every);
    document.querySelectorAll(".class .camera-button").forEach((button) => { button.hidden = !this.isPictures; });
    at("undo").disabled = this.isBusy || !this._history.canUndo;
    at("forget").disabled = this.isBusy || !(taught || classes.some(({ samples }) => samples.length));
    at("load").disabled = this.isBusy;
    at("add-class").disabled = this.isBusy;
    at("start").textContent = this.isBusy ? "Stop" : "Teach";
    at("classes").inert = this.isBusy;
    at("keep").hidden = !taught || this.isBusy;
    at("progress").hidden = !this.isBusy;
    if (!this.isBusy) this._showResult(taught);
    this._trial.refresh();
  }

  async _teach() {
    const { classes } = this.now;
    const why = obstacle(classes, this.things);
    if (why) return this.tell(why);
    this.tell("");
    this.camera.close();
    const { learn, aside } = split(classes, this._every);
    this._busy(true);
    try {
      const { own } = this.now; // teaching never starts from a model that was taught already
      if (this.now.file !== own.file) await this.remote.open(own.file);
      const times = [];
      const mirror = this.isPictures && at("mirror").checked;
      const state = await this.remote.adapt(learn.samples, learn.labels, (step) => this._showStep(step, times), mirror);
      const found = await this.remote.predict(aside.samples);
      const right = found.filter(({ label }, i) => label === aside.labels[i]).length;
      const learned = `${learn.samples.length}${mirror ? ", mirrored too" : ""}`;
      const result = { learned, right, aside: aside.samples.length, times, reached: await this.remote.highWaterBytes() };
      this.isBusy = false;
      this.change({ ...own, taught: { classes, state, result } });
    } catch (error) {
      await this._recover(error);
    }
    return undefined;
  }

  _showStep({ step, loss, milliseconds }, times) {
    if (step > 0) times.push(milliseconds);
    const { steps } = this.now.own.facts;
    Object.assign(at("progress"), { value: step, max: steps });
    at("status").textContent = step ? `Step ${step} of ${steps}, loss ${loss.toFixed(3)}` : `All ${this.things} looked at once`;
  }

  _stop() { this.remote.stop(); }

  /** The model as it was before, in a new Worker if the old one is gone. */
  async _recover(error) {
    this.tell(`Not taught: ${error.message}`);
    await this._bringInLine();
    this._busy(false);
  }

  _busy(isBusy) {
    this.isBusy = isBusy;
    if (isBusy) at("status").textContent = "Teaching…";
    at("progress").value = 0;
    this._show();
  }

  _showResult(taught) {
    const result = taught?.result;
    at("accuracy").hidden = !result?.aside;
    at("costs").hidden = !result;
    at("status").textContent = taught ? `It knows ${namesOf(this.now).join(", ")}.` : "";
    if (!result) return;
    const percent = Math.round((100 * result.right) / (result.aside || 1));
    at("accuracy").replaceChildren(element("b", { textContent: `${percent} %` }), ` right: ${result.right} of ${result.aside} put aside`);
    const mean = result.times.reduce((sum, ms) => sum + ms, 0) / result.times.length;
    const rows = [[`${this.things} learned from`, result.learned], ["steps", result.times.length], ["time of a step", `${mean.toFixed(0)} ms`],
      ["memory of the arena", bytes(result.reached)]];
    at("costs").replaceChildren(...rows.flatMap(([term, value]) => [element("dt", { textContent: term }), element("dd", { textContent: value })]));
  }

  async _undo() {
    this.tell("");
    this._history.undo();
    await this._bringInLine();
  }

  async _forget() {
    this.camera.close();
    this.tell("");
    const { own } = this.now;
    this.change(this._asLoaded(own.file, { ...own.facts, adapted: false }));
    await this._bringInLine();
    await this._trial.forget();
  }

  /** The model in the Worker as the page says it is. */
  async _bringInLine() {
    const { file, taught } = this.now;
    await this.remote.open(file);
    await this.remote.restore(taught?.state ?? null);
    await this._trial.refresh();
  }

  async _loadFiles(files) {
    this.tell("");
    for (const file of files) {
      try {
        await this._load(file);
      } catch (error) {
        this.tell(`${file.name}: ${error.message}`);
      }
    }
  }

  /** A model, or the names of its classes. */
  async _load(file) {
    if (/\.json$/i.test(file.name)) return this._loadNames(await file.text());
    if (!/\.pmeta$/i.test(file.name)) throw new Error("models end in .pmeta, names in .json; drop pictures on a class.");
    const data = new Uint8Array(await file.arrayBuffer());
    const facts = await this.remote.open(data);
    const { own } = this.now;
    if (facts.rows !== 1 || what(facts) !== what(own.facts)) {
      await this._bringInLine();
      throw new Error(`this page is for models that read ${what(own.facts)}, this one reads ${what(facts)}: write a page for it.`);
    }
    return this.change({ ...(facts.adapted ? {} : { own: { file: data, facts } }), ...this._asLoaded(data, facts) });
  }

  _loadNames(text) {
    const names = JSON.parse(text);
    const { classes } = this.now;
    if (!Array.isArray(names) || !names.every((name) => typeof name === "string" && name.trim()) || names.length !== classes.length) {
      throw new Error(`names are a list of ${classes.length} texts here, one for each class.`);
    }
    this.change({ classes: classes.map((one, i) => ({ ...one, name: names[i] })) });
  }
}

window.teachPage = new TeachPage(); // for tests, and for the curious in the console
window.teachPage.start().catch((error) => window.teachPage.tell(`The page did not start: ${error.message}`));
