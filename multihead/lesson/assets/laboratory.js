// What every lab is made of: knobs, and a result that is drawn again when one of them moves.

import { append, el, para, replace } from "./dom.js";

/** Values of knobs, kept while the page is open. */
const kept = new Map();

/** Make a lab: `knobs`, and what `draw(values, text)` returns, drawn again when one of them moves. */
export function laboratory(view, key, knobs, draw) {
  const values = kept.get(key) ?? Object.fromEntries(knobs.map(({ name, value }) => [name, value]));
  kept.set(key, values);
  const result = el("div", { class: "lab" });
  const redraw = () => replace(result, ...[draw(values, view.text)].flat());
  const controls = knobs.map(({ name, min, max, step = 1, options, text: isText, show = String }) => {
    const id = `${key}-${name}`;
    const label = view.text(`lab.${key}.${name}`);
    if (options) {
      const select = el("select", { id }, options.map((option) => el("option", { value: option, selected: option === values[name] }, view.text(`lab.${key}.${name}.${option}`))));
      select.addEventListener("change", () => ((values[name] = select.value), redraw()));
      return el("label", { for: id }, label, " ", select);
    }
    if (isText) {
      const input = el("input", { id, type: "text", value: values[name], maxlength: "200" });
      input.addEventListener("change", () => ((values[name] = input.value), redraw()));
      return el("label", { for: id, class: "wide-label" }, label, " ", input);
    }
    const output = el("output", { for: id }, show(values[name]));
    const input = el("input", { id, type: "range", min, max, step, value: values[name] });
    input.addEventListener("input", () => {
      values[name] = Number(input.value);
      output.textContent = show(values[name]);
      redraw();
    });
    return el("label", { for: id }, label, " ", input, " ", output);
  });
  append(view.root, para(view.text(`lab.${key}.text`)), el("div", { class: "knobs" }, controls), result);
  redraw();
}
