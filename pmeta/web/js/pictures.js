/** Pictures as `pmeta adapt` takes them: upright, transparent parts white, scaled so that the short side fits, cropped at the
 * centre. The filter is the bicubic one of Pillow, which averages when it shrinks, in the same integers. */

const BITS = 22; // of a weight
const STRIP = 256; // rows or columns of a picture that are in memory at a time
const MOST_PIXELS = 89478485; // as Pillow: a picture of more is an attack
const GREY = [19595, 38470, 7471]; // of 65536

/** Read a file or a frame (Blob, ImageBitmap, video, canvas) as one sample (channels, height, width). */
export async function readPicture(source, shape) {
  const options = { imageOrientation: "from-image", colorSpaceConversion: "none" };
  const bitmap = source instanceof ImageBitmap ? source : await createImageBitmap(source, options);
  try {
    const { width, height } = bitmap;
    if (width * height > MOST_PIXELS) throw new Error(`it has ${width} x ${height} pixels, more than ${MOST_PIXELS}`);
    return fitPicture({ width, height, rows: rowsOf(bitmap) }, shape);
  } finally {
    bitmap.close();
  }
}

/** Fit a picture to a sample. `rows(x, y, width, height)` gives RGBA bytes of a part of it. */
export function fitPicture(picture, shape) {
  const [, height, width] = shape;
  const [left, top, right, bottom] = centreCrop(picture.width, picture.height, width / height);
  const across = weights(picture.width, left, right, width);
  const down = weights(picture.height, top, bottom, height);
  // Each pass rounds, so their order shows: this is Pillow 13's.
  const downFirst = picture.height > height && picture.height - height > 2 * (picture.width - width);
  return downFirst ? fitDownFirst(picture, shape, across, down) : fitAcrossFirst(picture, shape, across, down);
}

function fitAcrossFirst(picture, [channels, height, width], across, down) {
  const [[firstRow, endRow], [firstColumn, endColumn]] = [reach(down), reach(across)];
  const columns = endColumn - firstColumn;
  const row = width * channels;
  const narrow = new Uint8Array((endRow - firstRow) * row); // (rows, width, channels)
  for (let y = firstRow; y < endRow; y += STRIP) {
    const count = Math.min(STRIP, endRow - y);
    const strip = flatten(picture.rows(firstColumn, y, columns, count), channels);
    for (let r = 0; r < count; r++) {
      squeeze(narrow, (y - firstRow + r) * row, channels, 1, strip, (r * columns - firstColumn) * channels, channels, across, channels);
    }
  }
  const sample = new Uint8Array(channels * height * width);
  for (let x = 0; x < width; x++) squeeze(sample, x, width, width * height, narrow, x * channels - firstRow * row, row, down, channels);
  return sample;
}

function fitDownFirst(picture, [channels, height, width], across, down) {
  const [[firstRow, endRow], [firstColumn, endColumn]] = [reach(down), reach(across)];
  const row = (endColumn - firstColumn) * channels;
  const short = new Uint8Array(height * row); // (height, columns, channels)
  for (let x = firstColumn; x < endColumn; x += STRIP) {
    const count = Math.min(STRIP, endColumn - x);
    const strip = flatten(picture.rows(x, firstRow, count, endRow - firstRow), channels);
    for (let c = 0; c < count; c++) {
      squeeze(short, (x - firstColumn + c) * channels, row, 1, strip, (c - firstRow * count) * channels, count * channels, down, channels);
    }
  }
  const sample = new Uint8Array(channels * height * width);
  for (let y = 0; y < height; y++) squeeze(sample, y * width, 1, width * height, short, y * row - firstColumn * channels, channels, across, channels);
  return sample;
}

/** A part of a picture as RGBA on white, from a canvas no larger than that part. */
function rowsOf(bitmap) {
  return (x, y, width, height) => {
    const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    context.fillStyle = "white";
    context.fillRect(0, 0, width, height);
    context.drawImage(bitmap, x, y, width, height, 0, 0, width, height);
    return context.getImageData(0, 0, width, height).data;
  };
}

function flatten(rgba, channels) {
  const flat = new Uint8Array((rgba.length / 4) * channels);
  for (let i = 0, j = 0; i < rgba.length; i += 4) {
    if (channels === 1) flat[j++] = (rgba[i] * GREY[0] + rgba[i + 1] * GREY[1] + rgba[i + 2] * GREY[2] + 32768) >> 16;
    else for (let c = 0; c < 3; c++) flat[j++] = rgba[i + c];
  }
  return flat;
}

/** The largest part in the middle with this ratio of width to height, in fractions of a pixel. */
function centreCrop(width, height, ratio) {
  const wide = width / height >= ratio;
  const [w, h] = [wide ? ratio * height : width, wide ? height : width / ratio];
  const [x, y] = [(width - w) / 2, (height - h) / 2];
  return [x, y, x + w, y + h].map(Math.fround); // Pillow keeps them as floats
}

function bicubic(distance) {
  const x = Math.abs(distance);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0;
}

/** For each of `count` outputs: the first input that it reads, and whole-number weights of it and those behind it. */
function weights(size, from, to, count) {
  if (from === 0 && to === size && size === count) return Array.from({ length: count }, (_, i) => [i, [1 << BITS]]);
  const scale = Math.fround(to - from) / count;
  const wide = Math.max(scale, 1);
  return Array.from({ length: count }, (_, i) => {
    const centre = from + (i + 0.5) * scale;
    const first = Math.max(Math.trunc(centre - 2 * wide + 0.5), 0);
    const end = Math.min(Math.trunc(centre + 2 * wide + 0.5), size);
    const parts = Array.from({ length: end - first }, (_, k) => bicubic((first + k - centre + 0.5) * (1 / wide)));
    const total = parts.reduce((sum, part) => sum + part, 0);
    return [first, Int32Array.from(parts, (part) => Math.trunc((part / total) * (1 << BITS) + (part < 0 ? -0.5 : 0.5)))];
  });
}

function reach(table) {
  return [table[0][0], Math.max(...table.map(([first, parts]) => first + parts.length))];
}

/** One line of a picture, all its channels, made shorter or longer. Steps lead from one pixel to the next. */
function squeeze(out, outAt, outStep, outPlane, line, lineAt, lineStep, table, channels) {
  for (let i = 0; i < table.length; i++) {
    const [first, parts] = table[i];
    for (let c = 0; c < channels; c++) {
      let sum = 1 << (BITS - 1);
      for (let k = 0, at = lineAt + first * lineStep + c; k < parts.length; k++, at += lineStep) sum += line[at] * parts[k];
      out[outAt + i * outStep + c * outPlane] = Math.min(Math.max(sum >> BITS, 0), 255);
    }
  }
}
