// Small pictures in SVG: curves and bars, with their numbers as text for people who cannot see them.

import { bdi, count, el, number, percent, pushButton, svg } from "./dom.js";

const COLORS = 8;

/** Curves over the numbers `x`; `lines` are {label, y(x)}. */
export function curves({ title, x, lines, xLabel = "", yLabel = "", width = 560, height = 240 }) {
  const values = lines.map(({ y }) => x.map(y));
  const finite = values.flat().filter(Number.isFinite);
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const margin = { left: 46, right: 16, top: 10, bottom: 40 };
  const left = (i) => margin.left + ((x[i] - x[0]) / (x.at(-1) - x[0] || 1)) * (width - margin.left - margin.right);
  const top = (v) => margin.top + (1 - (v - low) / (high - low || 1)) * (height - margin.top - margin.bottom);
  const path = (row) => row.map((v, i) => `${i ? "L" : "M"}${left(i).toFixed(1)} ${top(v).toFixed(1)}`).join("");
  const axis = [low, (low + high) / 2, high].map((v) =>
    svg("g", { class: "tick" }, svg("path", { d: `M${margin.left} ${top(v)} H${width - margin.right}` }), svg("text", { x: margin.left - 6, y: top(v) + 4, "text-anchor": "end" }, v.toFixed(2).replace("-", "−"))),
  );
  const places = [0, Math.floor((x.length - 1) / 2), x.length - 1].map((i) => svg("text", { x: left(i), y: height - 24, "text-anchor": i === x.length - 1 ? "end" : "middle" }, Number.isInteger(x[i]) ? count(x[i]) : number(x[i])));
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title, class: "curves" },
    axis,
    values.map((row, i) => svg("path", { class: `line color-${i % COLORS}`, d: path(row) })),
    places,
    svg("text", { x: (margin.left + width) / 2, y: height - 6, "text-anchor": "middle" }, xLabel),
  );
  const key = el("ul", { class: "key" }, lines.map(({ label }, i) => el("li", { class: `color-${i % COLORS}` }, label)));
  return el("figure", { class: "chart" }, el("figcaption", {}, title, yLabel ? ` (${yLabel})` : null), picture, lines.length > 1 ? key : null);
}

/** Horizontal bars; `items` are {label, value, note, on}. Bars with `on` are buttons. */
export function bars({ title, items, largest = null, format = percent }) {
  const top = largest ?? Math.max(...items.map((item) => Math.abs(item.value)), 1e-9);
  const row = ({ label, value, note, on }) => {
    const bar = el("span", { class: value < 0 ? "bar negative" : "bar", style: { "--share": `${Math.min(100, (100 * Math.abs(value)) / top).toFixed(1)}%` } });
    const content = [el("bdi", { class: "label" }, label), bar, el("span", { class: "figure" }, format(value)), note ? el("span", { class: "note" }, note) : null];
    return el("li", {}, on ? pushButton({ click: on }, content) : el("span", { class: "row" }, content));
  };
  return el("figure", { class: "bars" }, el("figcaption", {}, title), el("ol", {}, items.map(row)));
}

/** One bar cut into shares that add up to 1; `parts` are {label, value}, the largest first. Shares below 3% have no label in the bar. */
export function stacked({ title, parts }) {
  const piece = ({ label, value }, i) => el("span", { class: `color-${i % COLORS}`, style: { "--share": `${(100 * value).toFixed(2)}%` } }, value >= 0.03 ? bdi(label) : "");
  const key = parts.filter(({ value }) => value >= 0.001).map(({ label, value }, i) => el("li", { class: `color-${i % COLORS}` }, bdi(label), ` ${percent(value)}`));
  return el("figure", { class: "stacked" }, el("figcaption", {}, title), el("div", { class: "shares", "aria-hidden": "true" }, parts.map(piece)), el("ol", { class: "key" }, key));
}
