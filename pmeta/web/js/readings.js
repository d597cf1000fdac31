/** Windows of a sensor, for models that read float32 samples of shape (channels, length): from CSV or JSON text. */

/** All samples in a file. A CSV has a row for each moment and a column for each channel; several windows may follow one another.
 * JSON is one array of the model's shape, or a list of such arrays. */
export function readReadings(text, name, shape) {
  return /\.json$/i.test(name) ? readJson(text, shape) : readCsv(text, shape);
}

function readJson(text, shape) {
  const value = JSON.parse(text);
  const one = numbers(value, shape);
  const many = one ? [one] : Array.isArray(value) ? value.map((part) => numbers(part, shape)) : [];
  if (!many.length || many.includes(null)) throw new Error(`the array should have the shape (${shape}) or be a list of such`);
  return many;
}

/** A nested array of this shape as one Float32Array; null where it is of another shape. */
function numbers(value, shape) {
  const flat = [];
  const walk = (part, depth) => {
    if (depth === shape.length) return Number.isFinite(part) && flat.push(part) > 0;
    return Array.isArray(part) && part.length === shape[depth] && part.every((next) => walk(next, depth + 1));
  };
  return walk(value, 0) ? Float32Array.from(flat) : null;
}

function readCsv(text, shape) {
  const length = shape.at(-1);
  const channels = shape.slice(0, -1).reduce((size, n) => size * n, 1);
  const lines = text.split(/\r?\n/).filter((line) => line.trim());
  const rows = lines.map((line) => line.split(/[,;\t]/).map((cell) => (cell.trim() ? Number(cell) : NaN)));
  if (rows.length && rows[0].every(Number.isNaN)) rows.shift(); // names of the columns
  const good = rows.length > 0 && rows.length % length === 0 && rows.every((row) => row.length === channels && row.every(Number.isFinite));
  if (!good) throw new Error(`a window has ${length} rows of ${channels} numbers; the file has ${rows.length} rows, the first of ${rows[0]?.length ?? 0}`);
  return Array.from({ length: rows.length / length }, (_, w) => {
    const sample = new Float32Array(channels * length);
    for (let t = 0; t < length; t++) rows[w * length + t].forEach((value, c) => { sample[c * length + t] = value; });
    return sample;
  });
}
