/** Small pieces of the page, made from values. */

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

/** What the model sees of a sample: its pixels, or its curves. */
export function draw(sample, shape) {
  const canvas = document.createElement("canvas");
  return sample instanceof Uint8Array ? drawPicture(canvas, sample, shape) : drawCurves(canvas, sample, shape.at(-1));
}

function drawPicture(canvas, sample, [channels, height, width]) {
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const plane = width * height;
  for (let i = 0; i < plane; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = sample[i + (channels === 3 ? c * plane : 0)];
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

function drawCurves(canvas, sample, length) {
  Object.assign(canvas, { width: 168, height: 168 });
  const context = canvas.getContext("2d");
  const [low, high] = sample.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  context.lineWidth = 2;
  for (let at = 0, c = 0; at < sample.length; at += length, c++) {
    context.strokeStyle = `hsl(${(c * 67 + 205) % 360} 60% 50%)`;
    context.beginPath();
    for (let t = 0; t < length; t++) {
      const y = 160 - ((sample[at + t] - low) / (high - low || 1)) * 152;
      context.lineTo((t / Math.max(length - 1, 1)) * 168, y);
    }
    context.stroke();
  }
  return canvas;
}

/** A bar for each class; `colors` by their number. */
export function drawBars(list, names, probabilities, colors) {
  const best = probabilities.indexOf(Math.max(...probabilities));
  while (list.children.length > names.length) list.lastChild.remove();
  names.forEach((name, i) => {
    const item = list.children[i] ?? list.appendChild(newBar());
    const percent = `${Math.round(100 * probabilities[i])} %`;
    item.className = i === best ? "first" : "";
    item.style.setProperty("--c", colors(i));
    item.querySelector(".label").textContent = name;
    item.querySelector(".percent").textContent = percent;
    item.querySelector(".bar span").style.width = `${100 * probabilities[i]}%`;
  });
}

function newBar() {
  const parts = ["label", "percent", "bar"].map((className) => element("span", { className }));
  parts[2].append(element("span"));
  return element("li", {}, ...parts);
}

export function bytes(n) {
  return n >= 1e6 ? `${(n / 1e6).toFixed(2)} MB` : `${(n / 1e3).toFixed(0)} kB`;
}

/** Let the user keep a file. */
export function download(data, name, type) {
  const url = URL.createObjectURL(new Blob([data], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
