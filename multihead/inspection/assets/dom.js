// Small helpers: elements, numbers, and moving the focus with arrow keys.

export const byId = (id) => document.getElementById(id);

// A token as it is shown: the space that begins a word is left out, other white space becomes visible.
export function visible(text) {
  const bare = text.replace(/^ (?=.)/s, "");
  return /^\s*$/.test(bare) ? bare.replaceAll("\n", "⏎").replace(/\s/g, "␣") || "␣" : bare;
}

export function make(name, { text, on, style, ...attributes } = {}, ...children) {
  const node = document.createElement(name);
  if (style) node.style.cssText = style; // not as an attribute, which a strict content policy forbids
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  for (const [event, listener] of Object.entries(on ?? {})) node.addEventListener(event, listener);
  if (text !== undefined) node.textContent = text;
  node.append(...children);
  return node;
}

export function draw(name, { style, ...attributes }) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  if (style) node.style.cssText = style;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

export const percent = (share) => `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)}%`;
export const chance = (share) => (share < 0.0005 ? "< 0.1%" : share > 0.9995 ? "> 99.9%" : percent(share));
export const largest = (numbers) => numbers.reduce((best, number, at) => (number > numbers[best] ? at : best), 0);

// Move the focus among the items of a group: one stop for Tab, arrows inside.
export function rove(items, moves) {
  items.forEach((item, at) => {
    item.tabIndex = at ? -1 : 0;
    item.addEventListener("focus", () => items.forEach((other) => (other.tabIndex = other === item ? 0 : -1)));
    item.addEventListener("keydown", (event) => {
      const target = moves(event.key, at);
      if (target === undefined) return;
      event.preventDefault();
      items[Math.max(0, Math.min(items.length - 1, target))].focus();
    });
  });
}
export const alongRow = (n) => (key, at) =>
  ({ ArrowRight: (at + 1) % n, ArrowLeft: (at + n - 1) % n, Home: 0, End: n - 1 })[key];
