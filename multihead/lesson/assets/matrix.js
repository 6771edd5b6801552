// A matrix to look at: cells with their numbers up to 400 of them, a picture above; a cursor that moves with the arrow keys,
// the cell under it in words, hatching where a mask forbids, and export as CSV or PNG.

import { announce, bdi, colorOf, el, number, pushButton, scrolling, svg, words } from "./dom.js";
import { range } from "./engine.js";

const MAX_TABLE_CELLS = 400;
const MAX_TABLE_COLUMNS = 24;
const MAX_WIDE_COLUMNS = 128; // of a picture that a reader turns into a table

/**
 * Make a matrix view.
 *
 * `rows`, `columns`: labels, or how many there are, to number them from 0. `at(row, column)`: the number, -Infinity where masked. `caption`: text. `kind`: "weights" (0 to
 * 1, one hue), "signed" (hue by sign, alike for all with the same `largest`) or "plain" (no color). `isHidden(row, column)`:
 * whether a mask forbids this cell, which is hatched even if its number is 0. `selected`: [row, column] or null.
 * `onSelect(row, column)` is called for a click or Enter. `digits`: after the point. `compact`: always a picture,
 * which begins as numbers if `isWide`.
 */
export function matrix({ rows: ownRows, columns: ownColumns, at, caption, kind = "signed", largest = null, isHidden = null, selected = null, onSelect = null, digits = 2, compact = false, isWide = false, name = "" }) {
  const [rows, columns] = [ownRows, ownColumns].map((labels) => (Array.isArray(labels) ? labels : range(labels).map(String)));
  const top = largest ?? extreme(rows.length, columns.length, at);
  const hidden = isHidden ?? ((row, column) => at(row, column) === -Infinity);
  const shape = { rows, columns, at, kind, top, hidden, digits, onSelect, selected };
  const isTable = !compact && columns.length <= MAX_TABLE_COLUMNS && rows.length * columns.length <= MAX_TABLE_CELLS;
  const body = isTable ? table(shape) : isWide ? wideTable(shape) : picture(shape);
  const size = `${rows.length} × ${columns.length}`;
  const place = scrolling(null, body);
  return el(
    "figure",
    { class: `matrix ${isTable ? "cells" : "picture"}`, "data-tensor": name || null },
    el("figcaption", {}, el("span", { class: "name" }, caption), " ", el("span", { class: "size" }, size)),
    place,
    tools(shape, caption, isTable ? null : place, isWide),
  );
}

/** The size of a number that gets the full color: the largest, in a picture of many cells the 99th percentile. */
export function extreme(n, m, at) {
  const sizes = new Float64Array(n * m).map((_, i) => Math.abs(at(Math.floor(i / m), i % m))).filter(Number.isFinite).sort();
  return sizes[n * m > MAX_TABLE_CELLS ? Math.floor(0.99 * (sizes.length - 1)) : sizes.length - 1] || 1;
}

/** Background of a number: transparency by its size, hue by its sign; the same scale everywhere. */
function color(x, kind, top) {
  const share = Math.min(1, Math.abs(x) / (kind === "weights" ? 1 : top));
  const hue = kind === "weights" ? "--weight" : x < 0 ? "--negative" : "--positive";
  return [hue, kind === "plain" ? 0 : share];
}

/** Weights and plain numbers have a fixed number of digits; any other number shows how small it is. */
const written = (x, kind, digits) => (kind === "signed" || !(x >= 0) || x === Infinity ? number(x, digits) : x.toFixed(x === 0 ? 0 : digits));

function table({ rows, columns, at, kind, top, hidden, digits, onSelect, selected }) {
  const cells = rows.map((label, row) =>
    columns.map((_, column) => {
      const value = at(row, column);
      const isChosen = selected && selected[0] === row && selected[1] === column;
      const isFirst = selected ? isChosen : row === 0 && column === 0;
      const [hue, share] = color(value, kind, top);
      const masked = hidden(row, column);
      return el(
        "td",
        {
          class: [masked ? "masked" : "", isChosen ? "chosen" : ""].join(" ").trim() || null,
          tabindex: isFirst ? "0" : "-1",
          "data-row": row,
          "data-column": column,
          style: masked ? {} : { "--hue": `var(${hue}-cell)`, "--share": `${(100 * share).toFixed(1)}%` },
          role: "gridcell",
          "aria-selected": isChosen ? "true" : null,
        },
        written(value, kind, digits),
      );
    }),
  );
  const head = el("tr", {}, el("td", { class: "corner" }), columns.map((label) => el("th", { scope: "col" }, bdi(label))));
  const body = rows.map((label, row) => el("tr", {}, el("th", { scope: "row" }, bdi(label)), cells[row]));
  const view = el("table", { role: "grid" }, el("thead", {}, head), el("tbody", {}, body));
  const choose = (cell) => cell && onSelect?.(Number(cell.dataset.row), Number(cell.dataset.column));
  view.addEventListener("click", (event) => choose(event.target.closest("td[data-row]")));
  view.addEventListener("keydown", (event) => moveCursor(event, cells, rows, columns, choose));
  return view;
}

function moveCursor(event, cells, rows, columns, choose) {
  const cell = event.target.closest("td[data-row]");
  if (!cell) return;
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    event.stopPropagation();
    choose(cell);
  }
  const step = steps[event.key];
  if (!step) return;
  event.preventDefault();
  event.stopPropagation();
  const row = Math.min(rows.length - 1, Math.max(0, Number(cell.dataset.row) + step[0]));
  const column = Math.min(columns.length - 1, Math.max(0, Number(cell.dataset.column) + step[1]));
  const next = cells[row][column];
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  announce(`${rows[row]}, ${columns[column]}: ${next.textContent}`);
}

// Larger matrices are drawn on a canvas, with one focusable cursor on top.

function picture({ rows, columns, at, kind, top, hidden, digits, onSelect, selected }) {
  const n = rows.length;
  const m = columns.length;
  const canvas = el("canvas", { width: m, height: n, "aria-hidden": "true" });
  const step = Math.min(18, Math.max(3, 240 / n)); // pixels of a row
  canvas.style.setProperty("height", `${step * n}px`);
  const width = Math.max(220, Math.min(760, m * Math.max(3, Math.min(12, step))));
  requestAnimationFrame(() => paint(canvas, n, m, at, kind, top, hidden));
  let [row, column] = selected ?? [0, 0];
  const readout = el("output", { class: "readout" });
  const cursor = el("button", { class: "cursor", type: "button" });
  const place = () => {
    cursor.style.setProperty("left", `${(100 * column) / m}%`);
    cursor.style.setProperty("top", `${(100 * row) / n}%`);
    cursor.style.setProperty("width", `${100 / m}%`);
    cursor.style.setProperty("height", `${100 / n}%`);
    const text = `${rows[row]}, ${columns[column]}: ${number(at(row, column), Math.max(digits, 3))}`;
    readout.textContent = text;
    cursor.setAttribute("aria-label", text);
  };
  cursor.addEventListener("click", (event) => {
    event.stopPropagation();
    onSelect?.(row, column);
  });
  cursor.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    row = Math.min(n - 1, Math.max(0, row + step[0]));
    column = Math.min(m - 1, Math.max(0, column + step[1]));
    place();
  });
  const frame = el("div", { class: "frame", style: { width: `${width}px` } }, canvas, cursor);
  frame.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    row = Math.min(n - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * n)));
    column = Math.min(m - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * m)));
    place();
    onSelect?.(row, column);
  });
  if (selected) cursor.classList.add("chosen");
  place();
  const labels = el("div", { class: "labels", "aria-hidden": "true" }, step >= 11 ? rows.map((label) => bdi(label)) : []);
  labels.style.setProperty("height", `${step * n}px`);
  return el("div", { class: "drawn" }, labels, frame, readout);
}

function paint(canvas, n, m, at, kind, top, hidden) {
  const colors = Object.fromEntries(["--positive", "--negative", "--weight", "--hatch"].map((hue) => [hue, colorOf(hue)]));
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, m, n);
  for (let row = 0; row < n; row++)
    for (let column = 0; column < m; column++) {
      const value = at(row, column);
      const [hue, share] = hidden(row, column) ? ["--hatch", (row + column) % 2 ? 0.5 : 0.15] : color(value, kind, top);
      pen.globalAlpha = share;
      pen.fillStyle = colors[hue];
      pen.fillRect(column, row, 1, 1);
    }
}

// Export

/** Buttons under a matrix; `place` holds a picture that can become a table of its first columns. */
function tools(shape, caption, place, isWide) {
  const file = caption.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "matrix";
  return el(
    "div",
    { class: "tools" },
    place && pushButton({ pressed: isWide, click: (event) => asTable(event.currentTarget, shape, place) }, words.text("tools.numbers")),
    pushButton({ click: () => save(`${file}.csv`, csv(shape), "text/csv") }, "CSV"),
    pushButton({ click: () => savePicture(`${file}.png`, shape) }, "PNG"),
    pushButton({ click: () => save(`${file}.svg`, drawing(shape, caption), "image/svg+xml") }, "SVG"),
  );
}

/** The matrix as a drawing with its labels, for slides and papers. */
function drawing({ rows, columns, at, kind, top, hidden }, caption) {
  const [size, left, above] = [16, 8 + 7 * Math.max(...rows.map((label) => label.length)), 30 + 7 * Math.max(...columns.map((label) => label.length))];
  const cells = rows.flatMap((_, row) => columns.map((__, column) => {
    const [hue, share] = hidden(row, column) ? ["--hatch", 0.4] : color(at(row, column), kind, top);
    return svg("rect", { x: left + column * size, y: above + row * size, width: size - 1, height: size - 1, fill: colorOf(hue), "fill-opacity": share.toFixed(3) }, svg("title", {}, `${rows[row]}, ${columns[column]}: ${number(at(row, column), 4)}`));
  }));
  const ink = { fill: colorOf("--ink"), "font-family": "sans-serif", "font-size": 12 };
  const picture = svg("svg", { viewBox: `0 0 ${left + columns.length * size + 10} ${above + rows.length * size + 10}`, width: left + columns.length * size + 10 },
    svg("text", { ...ink, x: 4, y: 15 }, caption),
    rows.map((label, row) => svg("text", { ...ink, x: left - 4, y: above + row * size + 12, "text-anchor": "end" }, label)),
    columns.map((label, column) => svg("text", { ...ink, transform: `translate(${left + column * size + 12} ${above - 4}) rotate(-90)` }, label)),
    cells,
  );
  return new XMLSerializer().serializeToString(picture);
}

function asTable(button, shape, place) {
  const isTable = button.getAttribute("aria-pressed") === "false";
  button.setAttribute("aria-pressed", String(isTable));
  place.replaceChildren(isTable ? wideTable(shape) : picture(shape));
}

/** The numbers of a picture, up to a width that a browser draws quickly. */
const wideTable = (shape) => table({ ...shape, columns: shape.columns.slice(0, MAX_WIDE_COLUMNS) });

function csv({ rows, columns, at }) {
  const quote = (text) => `"${String(text).replaceAll('"', '""')}"`;
  const lines = rows.map((label, row) => [quote(label), ...columns.map((_, column) => at(row, column))].join(","));
  return [["", ...columns].map(quote).join(","), ...lines].join("\n") + "\n";
}

function savePicture(file, { rows, columns, at, kind, top, hidden }) {
  const small = el("canvas", { width: columns.length, height: rows.length });
  document.body.append(small);
  paint(small, rows.length, columns.length, at, kind, top, hidden);
  const zoom = Math.max(1, Math.floor(800 / Math.max(rows.length, columns.length)));
  const large = el("canvas", { width: columns.length * zoom, height: rows.length * zoom });
  const pen = large.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, 0, 0, large.width, large.height);
  small.remove();
  large.toBlob((blob) => download(file, blob));
}

export function save(file, text, type) {
  download(file, new Blob([text], { type }));
}

function download(file, blob) {
  const address = URL.createObjectURL(blob);
  el("a", { href: address, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
