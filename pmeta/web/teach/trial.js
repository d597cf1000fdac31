/** Trying what was learned: pictures that are dropped, pasted or picked, and what the camera sees, as it sees it. */
import { colorOf, namesOf } from "./state.js";
import { draw, drawBars, element } from "./view.js";

const MOST_TRIED = 24;

export class Trial {
  constructor(page) {
    this._page = page;
    this._tried = [];
    this._stage = document.getElementById("stage");
    this._verdict = document.getElementById("verdict");
    this._bars = document.getElementById("bars");
    this._list = document.getElementById("tried");
    const [live, pick, file] = ["live", "try-files", "try-file"].map((id) => document.getElementById(id));
    live.onclick = () => this._toggleLive(live);
    pick.onclick = () => file.click();
    file.onchange = () => { page.take(file.files, (samples) => this.add(samples)); file.value = ""; };
    page.acceptDrops(document.getElementById("try-card"), (samples) => this.add(samples));
  }

  /** Samples to try; the last one is shown. */
  add(samples) {
    this._tried = [...this._tried, ...samples].slice(-MOST_TRIED);
    this._shown = this._tried.at(-1);
    this._page.camera.close();
    return this.refresh();
  }

  forget() {
    this._tried = [];
    this._shown = undefined;
    return this.refresh();
  }

  /** Predict all of it again, with the weights of now. */
  async refresh() {
    const { taught, facts } = this._page.now;
    const samples = this._tried;
    this._stage.querySelector("canvas")?.remove();
    if (this._shown) this._stage.append(draw(this._shown, facts.inputShape));
    const found = taught && samples.length ? await this._page.remote.predict(samples) : [];
    if (this._page.now.taught !== taught || samples !== this._tried) return;
    this._list.replaceChildren(...samples.map((sample, i) => this._newThumb(sample, found[i])));
    this._say(found[samples.indexOf(this._shown)]);
  }

  _newThumb(sample, found) {
    const button = element("button", { type: "button", className: "thumb" }, draw(sample, this._page.now.facts.inputShape));
    button.ariaLabel = found ? `Show this one: ${namesOf(this._page.now)[found.label]}` : "Show this one";
    if (found) button.style.setProperty("--c", colorOf(found.label));
    button.onclick = () => { this._shown = sample; this._page.camera.close(); this.refresh(); };
    return element("li", {}, button);
  }

  _say(found) {
    this._bars.hidden = !found;
    if (!found) {
      const first = this._page.now.taught ? "Drop" : "Teach it first, then drop";
      this._verdict.textContent = `${first} ${this._page.things} here${this._page.isPictures ? ", or use the camera" : ""}.`;
      return;
    }
    const names = namesOf(this._page.now);
    if (this._verdict.textContent !== names[found.label]) {
      this._verdict.replaceChildren(element("b", { textContent: names[found.label] }));
    }
    drawBars(this._bars, names, found.probabilities, colorOf);
  }

  async _toggleLive(button) {
    const { camera } = this._page;
    if (button.ariaPressed === "true") return camera.close();
    if (!this._page.now.taught) return this._page.tell("Teach it first, then it can name what the camera sees.");
    button.ariaPressed = "true";
    this._shown = undefined;
    this._stage.replaceChildren();
    try {
      await camera.open(this._stage, () => { button.ariaPressed = "false"; });
      await this._watch(button);
    } catch (error) {
      this._page.tell(error.message);
    }
    return undefined;
  }

  /** Name one frame after the other, as fast as the model goes, until the camera is off. */
  async _watch(button) {
    while (button.ariaPressed === "true") {
      const { taught } = this._page.now;
      const frame = await this._page.camera.frame();
      if (frame && taught && !this._page.isBusy) {
        const [found] = await this._page.remote.predict([await this._page.remote.picture(frame)]);
        if (button.ariaPressed === "true" && this._page.now.taught === taught) this._say(found);
      }
      await new Promise((next) => { requestAnimationFrame(next); });
    }
  }
}
