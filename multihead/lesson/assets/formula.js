// The paper's formulas, in MathML. They are in formulas.json: a list of lines for each name. Symbols that are matrices carry
// a class, so that they have the color of their picture.

import { byId, el } from "./dom.js";

let lines = null;

/** The formula of this name. */
export function formula(name) {
  lines ??= JSON.parse(byId("formulas").textContent);
  const parse = (line) => new DOMParser().parseFromString(`<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">${line}</math>`, "application/xml").documentElement;
  return el("div", { class: "formula" }, lines[name].map((line) => document.importNode(parse(line), true)));
}
