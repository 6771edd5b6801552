// "By hand": the worked examples of lectures and slides, with numbers that can be changed. No model is needed.

import { el, film, heading, hint, number, para, pushButton } from "./dom.js";
import { softmaxRows, sumOf } from "./engine.js";

// ------------------------------------------------------------------------------------------------------------ arithmetic

export const product = (a, b) => a.map((row) => b[0].map((_, j) => sumOf(row, (x, k) => x * b[k][j])));
export const transpose = (a) => a[0].map((_, j) => a.map((row) => row[j]));
export const softmax = (rows) => rows.map((row) => (row.every((x) => x === -Infinity) ? row.map(() => NaN) : [...softmaxRows(Float64Array.from(row), row.length)]));

/** Every matrix of the worked example, from x and three weight matrices. */
export function workedExample({ x, w_key: wk, w_query: wq, w_value: wv }, { isScaled, isRounded }) {
  const [q, k, v] = [product(x, wq), product(x, wk), product(x, wv)];
  const scores = product(q, transpose(k));
  const divisor = isScaled ? Math.sqrt(k[0].length) : 1;
  const exact = softmax(scores.map((row) => row.map((s) => s / divisor)));
  const weights = isRounded ? exact.map(inTenths) : exact;
  return { q, k, v, scores, weights, output: product(weights, v) };
}

/** Shares rounded to tenths that still add up to 1: what is left over goes to those that lost the most. */
function inTenths(row) {
  const tenths = row.map((w) => Math.floor(10 * w + 1e-9));
  const lost = row.map((w, i) => 10 * w - tenths[i]);
  const order = row.map((_, i) => i).sort((a, b) => lost[b] - lost[a]);
  const left = 10 - sumOf(tenths);
  order.slice(0, left).forEach((i) => (tenths[i] += 1));
  return tenths.map((x) => x / 10);
}

/** Weights of a soft look-up: how well a query fits each key, sharpened. */
export function softLookUp(query, keys, sharpness) {
  return softmax([keys.map((key) => -sharpness * (query - key) ** 2)])[0];
}

// ---------------------------------------------------------------------------------------------------------------- parts

const EXAMPLE = {
  x: [[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]],
  w_key: [[0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]],
  w_query: [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]],
  w_value: [[0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]],
};
const WORDS = ["Hi", "how", "are", "you"];
const GRID = [[98, 27, 10, 12], [27, 89, 31, 67], [10, 31, 91, 54], [12, 67, 54, 92]];
const SLIDE_GRID = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.1, 0.3, 0.6, 0.1], [0.1, 0.3, 0.3, 0.3]];
const SLIDE_MASKED = [["1", "0", "0", "0"], ["0.37", "0.62", "0", "0"], ["0.26", "0.31", "0.43", "0"], ["0.21", "0.26", "0.26", "0.26"]];
const LOOK_UP = { keys: [0, 1, 2, 3], values: [10, 20, 40, 80] };
const copy = (value) => JSON.parse(JSON.stringify(value));

/** What the reader has typed; kept while the page is open, and in the link. */
let numbers = null;
const OPTIONS = { isScaled: false, isRounded: false, isMasked: true, isStrict: false, isShort: false, areColumns: false, query: 1.4, sharpness: 2 };
let options = OPTIONS;

/** What differs from the slides, for the link: "x.0.1=5;mask.2.3=0;isScaled=1". */
export function toyLink() {
  if (!numbers) return "";
  const slides = start();
  const changed = (name, own, first) => (Array.isArray(own) ? own.flatMap((value, i) => changed(`${name}.${i}`, value, first[i])) : own === first ? [] : [`${name}=${Number(own)}`]);
  return [...Object.entries(numbers), ...Object.entries(options)].flatMap(([name, own]) => changed(name, own, slides[name] ?? OPTIONS[name])).join(";");
}

/** Take over the numbers of a link; what is not a number of the slides is left out. */
export function readToyLink(link) {
  [numbers, options] = [start(), { ...OPTIONS }];
  for (const [name, text] of link.split(";").map((part) => part.split("="))) {
    const [key, ...index] = name.split(".");
    let place = Object.hasOwn(numbers, key) ? numbers : Object.hasOwn(options, key) ? options : null;
    const path = [key, ...index];
    while (path.length > 1 && Array.isArray(place?.[path[0]])) place = place[path.shift()];
    const [at, value] = [path[0], Number(text)];
    if (path.length > 1 || !place || !Object.hasOwn(place, at) || at === "length" || !text || !Number.isFinite(value)) continue;
    if (typeof place[at] === "boolean") place[at] = value !== 0;
    else if (typeof place[at] === "number") place[at] = value;
  }
}

const start = () => ({ ...copy(EXAMPLE), grid: copy(GRID), attended: copy(SLIDE_GRID), mask: SLIDE_GRID.map((row, i) => row.map((_, j) => j <= i)), values: copy(LOOK_UP.values) });

export function renderToy(view) {
  numbers ??= start();
  const { root, text } = view;
  const draw = () => {
    const focus = document.activeElement?.dataset?.cell;
    const cells = () => [...root.querySelectorAll("[data-cell]")];
    const before = new Map(cells().map((cell) => [cell.dataset.cell, cell.textContent]));
    root.replaceChildren(
      el("h1", {}, text("toy.title")),
      hint(text("toy.intro")),
      pushButton({ id: "toy-reset", class: "primary", click: () => { [numbers, options] = [start(), OPTIONS]; draw(); } }, text("toy.reset")),
      partA(view, draw),
      partB(view, draw),
      partC(view, draw),
      partD(view, draw),
      mistakes(view),
    );
    for (const cell of cells()) if ((before.get(cell.dataset.cell) ?? cell.textContent) !== cell.textContent) cell.classList.add("changed");
    if (focus) root.querySelector(`[data-cell="${focus}"]`)?.focus();
    view.changed();
  };
  draw();
}

/** The matrices of part A, which have no labels, with words as columns if a reader wants W x in place of x W. */
const turned = (cells, labels) => (options.areColumns && !labels ? transpose(cells) : cells);

/** A matrix of inputs. */
function editable(name, caption, draw, labels = null) {
  const rows = numbers[name];
  const cell = (i, j) => {
    const input = el("input", { type: "number", step: "any", value: rows[i][j], "data-cell": `${name}-${i}-${j}`, "aria-label": `${caption} ${i + 1}, ${j + 1}` });
    input.addEventListener("change", () => {
      const value = Number(input.value);
      if (input.value !== "" && Number.isFinite(value)) rows[i][j] = value;
      draw();
    });
    input.addEventListener("keydown", (event) => moveTo(event, name, i, j));
    return input;
  };
  return grid(name, caption, turned(rows.map((row, i) => row.map((_, j) => cell(i, j))), labels), labels);
}

function moveTo(event, name, i, j) {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const next = options.areColumns && name !== "grid" && name !== "attended" ? [i, j + step] : [i + step, j];
  document.querySelector(`[data-cell="${name}-${next.join("-")}"]`)?.focus();
}

/** A matrix of results; each cell can be opened to see how it was computed. */
function computed(name, caption, rows, { digits = options.isShort ? 2 : 4, explain = null, labels = null, columns = null } = {}) {
  const cells = rows.map((row, i) => row.map((value, j) => {
    const shown = show(value, digits);
    if (!explain) return el("span", { "data-cell": `${name}-${i}-${j}` }, shown);
    return pushButton({ "data-cell": `${name}-${i}-${j}`, click: (event) => (event.target.closest("figure").querySelector("output").textContent = explain(i, j)) }, shown);
  }));
  return grid(name, caption, turned(cells, labels), labels, explain ? el("output", { class: "note", "aria-live": "polite" }) : null, columns);
}

const show = (value, digits) => (Number.isNaN(value) ? "0/0" : Number.isInteger(value) && digits < 2 ? String(value) : number(value, digits).replace(/^(.*)e.*$/, () => (0).toFixed(digits)));

function grid(name, caption, cells, labels = null, after = null, columns = null) {
  const head = columns ? el("thead", {}, el("tr", {}, labels ? el("td") : null, columns.map((label) => el("th", { scope: "col" }, label)))) : null;
  const body = cells.map((row, i) => el("tr", {}, labels ? el("th", { scope: "row" }, labels[i]) : null, row.map((cell) => el("td", {}, cell))));
  return el("figure", { class: "toy-matrix", "data-matrix": name }, el("figcaption", {}, caption), el("table", {}, head, el("tbody", {}, body)), after);
}

function toggle(id, label, name, draw) {
  const input = el("input", { type: "checkbox", id, checked: options[name] });
  input.addEventListener("change", () => {
    options = { ...options, [name]: input.checked };
    draw();
  });
  return el("label", { class: "check" }, input, " ", label);
}

/** A: x, three weight matrices, and everything that follows from them. */
function partA({ text }, draw) {
  const { q, k, v, scores, weights, output } = workedExample(numbers, options);
  const divisor = options.isScaled ? ` ÷ √${k[0].length}` : "";
  const dot = (a, b) => a.map((x, i) => `${show(x, 0)}·${show(b[i], 0)}`).join(" + ");
  const [xW, qk] = options.areColumns ? ["W x", "Kᵀ Q"] : ["x W", "Q Kᵀ"];
  const column = (matrix, j) => matrix.map((row) => row[j]);
  const projected = (letter, matrix, result) => ({ digits: 0, explain: (i, j) => `${letter}${i + 1}${j + 1} = ${dot(numbers.x[i], column(matrix, j))} = ${show(result[i][j], 0)}` });
  return section(text("toy.a"), [
    el("div", { class: "choices" }, toggle("toy-scaled", text("toy.scaled"), "isScaled", draw), toggle("toy-rounded", text("toy.rounded"), "isRounded", draw), toggle("toy-short", text("toy.short"), "isShort", draw), toggle("toy-columns", text("toy.columns"), "areColumns", draw)),
    options.areColumns ? hint(text("toy.columns.note")) : "",
    el("div", { class: "beside-toy" }, editable("x", text("toy.x"), draw), editable("w_key", text("toy.wk"), draw), editable("w_query", text("toy.wq"), draw), editable("w_value", text("toy.wv"), draw)),
    el("div", { class: "beside-toy" },
      computed("Q", `Q = ${xW}`, q, projected("q", numbers.w_query, q)),
      computed("K", `K = ${xW}`, k, projected("k", numbers.w_key, k)),
      computed("V", `V = ${xW}`, v, projected("v", numbers.w_value, v)),
    ),
    el("div", { class: "beside-toy" },
      computed("scores", qk, scores, { digits: 0, explain: (i, j) => `q${i + 1}·k${j + 1} = ${dot(q[i], k[j])} = ${show(scores[i][j], 0)}` }),
      computed("weights", `${text("toy.weights", { product: qk })}${divisor}`, weights, { explain: (i, j) => text("toy.share", { score: show(scores[i][j], 0), row: scores[i].map((s) => `e^(${show(s, 0)}${divisor})`).join(" + ") }) }),
      computed("output", text("toy.output"), output, { explain: (i, j) => weights[i].map((w, n) => `${number(w, 4)}·${show(v[n][j], 0)}`).join(" + ") + ` = ${number(output[i][j], 4)}` }),
    ),
  ]);
}

/** B: scores between words; why they are divided before the softmax. */
function partB({ text }, draw) {
  const weights = softmax(numbers.grid);
  const divided = softmax(numbers.grid.map((row) => row.map((s) => s / 8)));
  return section(text("toy.b"), [
    el("div", { class: "beside-toy" },
      editable("grid", text("toy.grid"), draw, WORDS),
      computed("grid-softmax", text("toy.softmax"), weights, { labels: WORDS }),
      computed("grid-divided", text("toy.divided"), divided, { labels: WORDS }),
      computed("grid-slide", text("toy.slide"), SLIDE_GRID, { digits: 1, labels: WORDS }),
    ),
    hint(text("toy.sum", { sum: number(sumOf(SLIDE_GRID[2]), 1) })),
  ]);
}

/** C: the look-ahead mask, cell by cell. */
function partC({ text }, draw) {
  const isVisible = (i, j) => (options.isStrict ? j < i : numbers.mask[i][j]);
  const masked = numbers.attended.map((row, i) => row.map((s, j) => (!options.isMasked || isVisible(i, j) ? s : -Infinity)));
  const cells = masked.map((row, i) => row.map((value, j) => pushButton({ class: value === -Infinity ? "masked" : null, "data-cell": `mask-${i}-${j}`, pressed: value === -Infinity, click: () => { numbers.mask[i][j] = !numbers.mask[i][j]; draw(); } }, number(value, 1))));
  return section(text("toy.c"), [
    el("div", { class: "choices" }, toggle("toy-mask", text("toy.mask"), "isMasked", draw), toggle("toy-strict", text("toy.strict"), "isStrict", draw)),
    el("div", { class: "beside-toy" },
      editable("attended", text("toy.scores"), draw, WORDS),
      grid("masked", text("toy.masked"), cells, WORDS),
      computed("masked-softmax", text("toy.softmax"), softmax(masked), { labels: WORDS }),
      grid("masked-slide", text("toy.slide"), SLIDE_MASKED.map((row) => row.map((value) => el("span", {}, value))), WORDS),
    ),
    options.isStrict ? hint(text("toy.nothing")) : "",
  ]);
}

/** D: a table that is looked up, hard and soft. */
function partD({ text }, draw) {
  const { keys } = LOOK_UP;
  const weights = softLookUp(options.query, keys, options.sharpness);
  const soft = sumOf(weights, (w, i) => w * numbers.values[i]);
  const nearest = keys.reduce((best, key, i) => (Math.abs(key - options.query) < Math.abs(keys[best] - options.query) ? i : best), 0);
  const range = (id, name, max, step) => {
    const input = el("input", { type: "range", id, min: "0", max: String(max), step: String(step), value: String(options[name]) });
    input.addEventListener("change", () => {
      options = { ...options, [name]: Number(input.value) };
      draw();
    });
    return el("label", {}, text(`toy.${name}`), " ", input, " ", number(options[name], 1));
  };
  const rows = keys.map((key, i) => {
    const input = el("input", { type: "number", step: "any", value: numbers.values[i], "data-cell": `values-${i}`, "aria-label": text("toy.value", { key }) });
    input.addEventListener("change", () => {
      numbers.values[i] = Number(input.value) || 0;
      draw();
    });
    return el("tr", { class: i === nearest ? "now" : null }, el("th", { scope: "row" }, String(key)), el("td", {}, input), el("td", { "data-cell": `share-${i}` }, number(weights[i], 4)));
  });
  return section(text("toy.d"), [
    el("div", { class: "knobs" }, range("toy-query", "query", 3, 0.1), range("toy-sharpness", "sharpness", 40, 0.5)),
    film(["key", "stored", "weight"].map((key) => text(`toy.${key}`)), rows),
    el("p", { "data-cell": "soft" }, text("toy.found", { hard: number(numbers.values[nearest], 1), soft: number(soft, 4) })),
  ]);
}

const section = (title, children) => el("section", { class: "toy-part" }, heading(title), children);

// "Spot the mistake": statements from texts about the paper, each with the numbers that decide.

export const MISTAKES = ["scaleafter", "strict", "grid", "result", "rounded", "value", "additive", "compress", "complexity", "path", "bleu", "transpose", "everywhere", "align"];

function mistakes({ text }) {
  const items = MISTAKES.map((key, i) => el("details", { class: "question", id: `mistake-${key}` }, el("summary", {}, [`E${i + 1} · `, text(`mistake.${key}`)]), para(text(`mistake.${key}.answer`))));
  return section(text("toy.mistakes"), [hint(text("toy.mistakes.intro")), ...items]);
}
