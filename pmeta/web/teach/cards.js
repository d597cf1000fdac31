/** The cards of the classes: their names, their samples, and the ways samples come in. */
import { colorOf, freeName, isAside, newClass } from "./state.js";
import { draw, element } from "./view.js";

const BURST = { after: 400, every: 250 }; // milliseconds that the button is held, and between pictures

export class Cards {
  constructor(page) {
    this._page = page;
    this._list = document.getElementById("classes");
    this._cards = new Map();
  }

  /** Bring the cards in line with the classes; those that stay keep the focus. */
  show({ classes }, every) {
    for (const [id, card] of this._cards) {
      if (classes.some((one) => one.id === id)) continue;
      card.root.remove();
      this._cards.delete(id);
    }
    classes.forEach((one, i) => {
      if (!this._cards.has(one.id)) this._cards.set(one.id, this._newCard(one.id));
      const { root } = this._cards.get(one.id);
      if (this._list.children[i] !== root) this._list.insertBefore(root, this._list.children[i] ?? null);
      this._fill(this._cards.get(one.id), one, i, every);
    });
  }

  /** Add a class and go to its name. */
  add() {
    const { classes, facts } = this._page.now;
    if (classes.length >= facts.outputs) {
      return this._page.tell(`This model tells ${facts.outputs} classes apart and no more: see pmeta page --help for --classes.`);
    }
    const made = newClass(freeName(classes));
    this._page.change({ classes: [...classes, made] });
    return this._cards.get(made.id).name.select();
  }

  /** Add samples to a class, which may have gone meanwhile. */
  addSamples(id, samples) {
    if (!samples.length || !this._find(id)) return;
    this._replace(id, (one) => ({ ...one, samples: [...one.samples, ...samples] }));
  }

  _find(id) { return this._page.now.classes.find((one) => one.id === id); }

  _replace(id, how) {
    this._page.change({ classes: this._page.now.classes.map((one) => (one.id === id ? how(one) : one)) });
  }

  _newCard(id) {
    const page = this._page;
    const name = element("input", { className: "name", maxLength: 60, ariaLabel: "Name of the class", autocomplete: "off" });
    const count = element("span", { className: "count" });
    const remove = element("button", { type: "button", className: "plain", textContent: "\u00d7" });
    const thumbs = element("ul", { className: "thumbs" });
    const camera = element("button", { type: "button", className: "camera-button", textContent: "Camera", ariaPressed: "false" });
    const pick = element("button", { type: "button", textContent: "Files" });
    const file = element("input", { type: "file", multiple: true, hidden: true, accept: page.accept });
    const place = element("div", { className: "camera" });
    const root = element("article", { className: "class card" },
      element("div", { className: "row" }, name, count, remove), thumbs, place,
      element("div", { className: "buttons" }, camera, pick, file));
    name.onchange = () => this._rename(id, name);
    name.onkeydown = (event) => { if (event.key === "Enter") name.blur(); };
    remove.onclick = () => this._remove(id);
    camera.onclick = () => this._toggleCamera(id, camera, place);
    pick.onclick = () => file.click();
    file.onchange = () => { page.take(file.files, (samples) => this.addSamples(id, samples)); file.value = ""; };
    page.acceptDrops(root, (samples) => this.addSamples(id, samples));
    return { root, name, count, thumbs, remove, pick, camera };
  }

  _fill(card, one, index, every) {
    card.root.style.setProperty("--c", colorOf(index));
    card.root.dataset.name = one.name;
    if (card.name.value !== one.name) card.name.value = one.name;
    card.remove.ariaLabel = `Take the class ${one.name} away`;
    card.pick.ariaLabel = `Add files to ${one.name}`;
    card.camera.ariaLabel = `Camera for ${one.name}`;
    card.count.textContent = one.samples.length || "";
    const known = new Map([...card.thumbs.children].map((item) => [item.sample, item]));
    const items = one.samples.map((sample) => known.get(sample) ?? this._newThumb(one.id, sample));
    if (items.some((item, i) => card.thumbs.children[i] !== item) || items.length !== known.size) card.thumbs.replaceChildren(...items);
    items.forEach((item, i) => {
      const aside = isAside(i, every);
      item.firstChild.classList.toggle("aside", aside);
      item.firstChild.ariaLabel = `Take ${i + 1} of ${one.name} away${aside ? " (put aside to test)" : ""}`;
    });
  }

  _newThumb(id, sample) {
    const button = element("button", { type: "button", className: "thumb" }, draw(sample, this._page.now.facts.inputShape));
    button.onclick = () => this._replace(id, (one) => ({ ...one, samples: one.samples.filter((other) => other !== sample) }));
    return Object.assign(element("li", {}, button), { sample });
  }

  _rename(id, input) {
    const name = input.value.trim();
    if (!name) input.value = this._find(id).name;
    else if (name !== this._find(id).name) this._replace(id, (one) => ({ ...one, name }));
  }

  _remove(id) {
    this._page.camera.close();
    this._page.change({ classes: this._page.now.classes.filter((one) => one.id !== id) });
    document.getElementById("add-class").focus();
  }

  async _toggleCamera(id, button, place) {
    const { camera } = this._page;
    if (button.ariaPressed === "true") return camera.close();
    const shoot = element("button", { type: "button", className: "shoot", textContent: "Take a picture (hold for more)" });
    button.ariaPressed = "true";
    this._holdToRepeat(shoot, () => this._shoot(id));
    try {
      await camera.open(place, () => { button.ariaPressed = "false"; shoot.remove(); });
      if (camera.isOn) place.append(shoot);
      shoot.focus();
    } catch (error) {
      this._page.tell(error.message);
    }
    return undefined;
  }

  async _shoot(id) {
    const frame = await this._page.camera.frame();
    if (frame) this.addSamples(id, [await this._page.remote.picture(frame)]);
  }

  /** A click is one picture; a button held down gives more of them. */
  _holdToRepeat(button, action) {
    let timer;
    const stop = () => clearTimeout(timer);
    const again = () => { action(); timer = setTimeout(again, BURST.every); };
    button.onclick = action;
    button.onpointerdown = () => { timer = setTimeout(again, BURST.after); };
    for (const end of ["pointerup", "pointerleave", "pointercancel"]) button.addEventListener(end, stop);
    button.oncontextmenu = (event) => event.preventDefault(); // a long press on a phone
  }
}
