// Small helpers for the page: elements, texts, numbers.

/** Make an element: `el("p", {class: "note", on: {click}}, "text", child)`. */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Make an SVG element. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(node, { on = {}, style = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes))
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  for (const [event, listener] of Object.entries(on)) node.addEventListener(event, listener);
  for (const [name, value] of Object.entries(style)) node.style.setProperty(name, value); // allowed by the policy, unlike style=""
  append(node, children);
  return node;
}

/** A paragraph. */
export const para = (...children) => el("p", {}, ...children);

/** A paragraph in small print. */
export const hint = (...children) => el("p", { class: "note" }, ...children);

/** A text in which `commands` stand between backticks. */
export const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));

/** Text of a user or a model, which may run from right to left. */
export const bdi = (...children) => el("bdi", {}, ...children);

/** What is done between two matrices. */
export const operation = (...children) => el("p", { class: "operation" }, ...children);

export const heading = (...children) => el("h2", {}, ...children);

export const group = (...children) => el("div", {}, ...children);

/** A part of a station that may be wider than the page. With a name it can be scrolled by keyboard; without one, what is in it can. */
export const scrolling = (name, ...children) => el("div", { class: "scroll", ...(name ? { tabindex: "0", role: "region", "aria-label": name } : {}) }, ...children);

/** A table with these headings; `body` are its rows. */
export const film = (heads, body, id = null) =>
  el("table", { class: "film", id }, el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, body));

/** A button that calls `click`; with `pressed` it is a switch. */
export const pushButton = ({ click, pressed = null, ...attributes }, ...children) =>
  el("button", { type: "button", "aria-pressed": pressed === null ? null : String(pressed), on: click ? { click } : {}, ...attributes }, ...children);

/** The color that a custom property stands for, as a canvas takes it. */
export function colorOf(property) {
  const probe = el("span", { style: { color: `var(${property})` } });
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** What is there of `children`: null, undefined and false are nothing. */
const present = (children) => children.flat(Infinity).filter((child) => (child ?? false) !== false);

export const append = (node, ...children) => node.append(...present(children));

/** Replace everything in a node. */
export const replace = (node, ...children) => node.replaceChildren(...present(children));

/** Numbers between 0 and 1 that look random and are the same each time (mulberry32). */
export function uniforms(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export const byId = (id) => document.getElementById(id);

/** A text of the page by its key, with {names} filled in. All texts are in strings.en.json. */
export function makeTexts(strings) {
  return (key, values = {}) => {
    const text = strings[key];
    if (text === undefined) throw new Error(`there is no text '${key}'`);
    return text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? `{${name}}`);
  };
}

/** A number for people: `digits` after the point, a true minus sign, −∞ for what is masked. */
export function number(x, digits = 2) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x < 0 ? "−∞" : "∞";
  const size = Math.abs(x);
  const text = size !== 0 && size < 10 ** -digits / 2 ? size.toExponential(1).replace("e-", "e−") : size.toFixed(digits);
  return x < 0 && Number(size.toFixed(Math.max(digits, 6))) !== 0 ? `−${text}` : text;
}

export const percent = (x) => (x > 0 && x < 0.0005 ? "< 0.1%" : `${(100 * x).toFixed(x < 0.1 ? 1 : 0)}%`);

/** A whole number with commas. */
export const count = (n) => Math.round(n).toLocaleString("en");

const SUPERSCRIPTS = { "-": "⁻", ...Object.fromEntries([..."⁰¹²³⁴⁵⁶⁷⁸⁹"].entries()) };

/** A very small number, such as a difference that only rounding makes. */
export function tiny(x) {
  if (x === 0) return "0";
  const [digits, power] = x.toExponential(1).split("e");
  const tens = `10${[...power].map((sign) => SUPERSCRIPTS[sign]).join("")}`;
  return digits === "1.0" ? tens : `${digits} × ${tens}`;
}

/** A piece as a word in running text: the space that begins a word is not shown, one that is all of a piece is. */
export function visible(piece) {
  const bare = piece.replace(/^ (?=.)/s, "");
  return /^\s*$/.test(bare) ? bare.replaceAll("\n", "⏎").replace(/\s/g, "␣") || "␣" : bare;
}

/** The words of the page, for parts that are not given them. */
export const words = { text: null };

/** Say something to people who listen to the page. */
export function announce(text) {
  byId("status").textContent = text;
}
