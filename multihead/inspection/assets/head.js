// One head, large: as a heat map with a cursor, or as a table of numbers; saved as CSV or PNG.

import { levelOf, paint, ramp } from "./colors.js";
import { byId, make } from "./dom.js";

// The head that is open: {title, file, queries, keys, sides, axes, rows, isMasked}; rows are shares from 0 to 1.
let shown = null;
let cell = null;
let asNumbers = false;

const MASKED = "its score is −∞, so its weight is 0";

const legend = () => `Rows: ${shown.axes[0]}. Columns: ${shown.axes[1]}.`;

export const isOpen = () => byId("large").open;

export function close() {
  if (isOpen()) byId("large").close();
}

export function showHead(head) {
  [shown, cell] = [head, null];
  byId("large-title").textContent = head.title;
  byId("heat").replaceChildren(asNumbers ? table() : heatMap());
  byId("numbers").setAttribute("aria-pressed", asNumbers);
  byId("readout").textContent = `${legend()} ` + (!asNumbers ? "Point at a cell for its weight." : head.isMasked(0, 1) ? "−∞: masked, the weight is 0." : "");
  if (!isOpen()) byId("large").showModal();
}

// Listen to the buttons of the dialog; `step` opens the next or previous head.
export function listen(step) {
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  byId("close").addEventListener("click", close);
  byId("large").addEventListener("click", (event) => { if (event.target === byId("large")) close(); });
  byId("numbers").addEventListener("click", () => { asNumbers = !asNumbers; showHead(shown); });
  byId("save-csv").addEventListener("click", () => save(`${shown.file}.csv`, new Blob([csv()], { type: "text/csv" })));
  byId("save-png").addEventListener("click", () => picture().toBlob((blob) => save(`${shown.file}.png`, blob)));
}

export const repaintHead = () => { if (isOpen()) showHead(shown); };


// Heat map

function heatMap() {
  const { queries, keys, rows, isMasked } = shown;
  const room = Math.min(1000, innerWidth - 80) - 120;
  const size = Math.max(14, Math.min(34, Math.floor(room / keys.length), Math.floor((innerHeight - 370) / queries.length)));
  const field = make("div", {
    class: "field", tabindex: "0", role: "application", "aria-label": "Heat map: arrow keys move over its cells",
    on: { pointermove: pointCell, pointerdown: pointCell, keydown: moveCell, focus: () => cell ?? showCell(0, 0) },
  }, paint(document.createElement("canvas"), rows, isMasked), make("div", { class: "mark", hidden: true }));
  const label = ({ text }) => make("span", { text, dir: "auto" });
  const sides = make("div", { class: "sides", "aria-hidden": "true" }, ...queries.map(label));
  const tops = make("div", { class: "tops", "aria-hidden": "true" }, ...keys.map(label));
  return make("div", {
    class: "sheetgrid", style: `--cell: ${size}px; --keys: ${keys.length}; --queries: ${queries.length}`,
  }, tops, sides, field);
}

function pointCell(event) {
  const edges = event.currentTarget.getBoundingClientRect();
  const within = (share, n) => Math.max(0, Math.min(n - 1, Math.floor(share * n)));
  showCell(within((event.clientY - edges.top) / edges.height, shown.queries.length), within((event.clientX - edges.left) / edges.width, shown.keys.length));
}

function moveCell(event) {
  const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [0, 0];
  if (!down && !right) return;
  event.preventDefault();
  const [query, key] = cell ?? [0, 0];
  showCell(Math.max(0, Math.min(shown.queries.length - 1, query + down)), Math.max(0, Math.min(shown.keys.length - 1, key + right)));
}

function showCell(query, key) {
  cell = [query, key];
  const bold = (token) => make("b", {}, make("bdi", { text: token.text }));
  const [verb, weight] = shown.isMasked(query, key) ? ["must not look at", `: ${MASKED}`] : [shown.sides[1], ` with ${shown.rows[query][key].toFixed(4)}`];
  byId("readout").replaceChildren(bold(shown.queries[query]), ` ${verb} `, bold(shown.keys[key]), weight);
  const mark = byId("heat").querySelector(".mark");
  mark.hidden = false;
  mark.style.left = `calc(var(--cell) * ${key})`;
  mark.style.top = `calc(var(--cell) * ${query})`;
  byId("heat").querySelectorAll(".sides span").forEach((label, at) => label.classList.toggle("on", at === query));
  byId("heat").querySelectorAll(".tops span").forEach((label, at) => label.classList.toggle("on", at === key));
}


// Numbers

function table() {
  const { queries, keys, rows, isMasked } = shown;
  const colors = ramp();
  const heading = (token, scope) => make("th", { scope }, make("bdi", { text: token.text }));
  const number = (share, query, key) => {
    if (isMasked(query, key)) return make("td", { class: "masked", text: "−∞" });
    const color = colors[levelOf(share)];
    return make("td", { text: share.toFixed(3), style: `background: rgb(${color.join()}); color: ${luminance(color) > 0.179 ? "#000" : "#fff"}` });
  };
  return make("table", { class: "numbers", tabindex: "0" },
    make("caption", { class: "unseen", text: shown.title }),
    make("thead", {}, make("tr", {}, make("td"), ...keys.map((key) => heading(key, "col")))),
    make("tbody", {}, ...queries.map((query, at) =>
      make("tr", {}, heading(query, "row"), ...rows[at].map((share, key) => number(share, at, key))))));
}

// Relative luminance: on colors above 0.179, black has the higher contrast, and below it white.
function luminance(color) {
  return color.reduce((sum, channel, at) => sum + [0.2126, 0.7152, 0.0722][at] * (channel / 255) ** 2.2, 0);
}

function csv() {
  const quote = (text) => `"${String(text).replaceAll('"', '""')}"`;
  const { queries, keys, sides, rows } = shown;
  const head = [`${sides[0]} / ${sides[1]}`, ...keys.map(({ text }) => text)].map(quote);
  return [head, ...rows.map((row, at) => [quote(queries[at].text), ...row.map((share) => share.toFixed(4))])].map((line) => `${line.join(",")}\r\n`).join("");
}


// Picture: always light, for paper and slides

function picture() {
  const { title, queries, keys, rows, isMasked } = shown;
  const [size, font, gap] = [28, "14px system-ui, sans-serif", 10];
  const canvas = document.createElement("canvas");
  const pen = canvas.getContext("2d");
  pen.font = font;
  const widest = (tokens) => Math.min(220, Math.max(...tokens.map(({ text }) => pen.measureText(text).width)));
  const [left, top] = [widest(queries) + 2 * gap, widest(keys) + 3 * gap + 40];
  const [width, height] = [keys.length * size, queries.length * size];
  const wide = Math.max(left + width, gap + pen.measureText(title).width, gap + pen.measureText(legend()).width) + 2 * gap;
  [canvas.width, canvas.height] = [2 * wide, 2 * (top + height + 2 * gap)];
  pen.scale(2, 2);
  pen.fillStyle = "#ffffff";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.font = font;
  pen.fillStyle = "#16202b";
  pen.fillText(title, gap, 24);
  pen.fillStyle = "#5b6875";
  pen.fillText(legend(), gap, 44);
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  queries.forEach(({ text }, at) => pen.fillText(text, left - gap, top + (at + 0.5) * size, left - 2 * gap));
  pen.textAlign = "left";
  keys.forEach(({ text }, at) => {
    pen.save();
    pen.translate(left + (at + 0.5) * size, top - gap);
    pen.rotate(-Math.PI / 2);
    pen.fillText(text, 0, 0, top - 3 * gap - 40);
    pen.restore();
  });
  const colors = ramp("light");
  rows.forEach((row, query) => row.forEach((share, key) => {
    const [x, y] = [left + key * size, top + query * size];
    if (isMasked(query, key)) return hatch(pen, x, y, size);
    pen.fillStyle = `rgb(${colors[levelOf(share)].map(Math.round).join()})`;
    pen.fillRect(x, y, size, size);
  }));
  pen.strokeStyle = "#c8ced4";
  pen.strokeRect(left, top, width, height);
  return canvas;
}

function hatch(pen, x, y, size) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, size, size);
  pen.clip();
  pen.beginPath();
  for (let at = 0; at < 2 * size; at += 7) {
    pen.moveTo(x + at, y);
    pen.lineTo(x + at - size, y + size);
  }
  pen.strokeStyle = "#a3adb7";
  pen.stroke();
  pen.restore();
}

function save(file, blob) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
