// The viewer of attention: what every head of every layer looks at, in one sentence and its translation.

const byId = (id) => document.getElementById(id);
const COLORS = 8;
const FAINTEST = 0.02; // a line below this weight could not be seen

// What is shown now: the data of one sentence, its three views, and what the reader has chosen.
let data, VIEWS, state;

// Show a sentence: the object that `multihead inspect` writes and that POST /attention answers with.
function showAttention(newData) {
  data = newData;
  VIEWS = makeViews();
  const [view, heads] = state ? [state.view, state.heads] : ["cross", null];
  state = { view, layer: data.alignment.layer, heads: new Set(), token: null, pinned: false, cell: null };
  if (byId("large").open) byId("large").close();
  byId("panel").dataset.view = "";
  showAlignment();
  showScale();
  for (const tab of byId("tabs").children) tab.hidden = !data.maps[tab.id.slice(4)].length; // no attention in there
  open(data.maps[view].length ? view : "cross");
  if (heads?.size && heads.size < nHeads()) { // a reader who follows some heads goes on with them
    state.heads = new Set([...heads].filter((head) => head < nHeads()));
    showHeads();
    showLines();
  }
}

// A token as it is shown: its text, whether it is a control symbol, whether it continues a word.
const piece = (text) => ({ text: visible(text), control: false, inner: /^[\p{L}\p{N}]/u.test(text) });
const control = (text) => ({ text, control: true, inner: false });

function makeViews() {
  const [end, start] = [data.tokens.source.at(-1), data.tokens.target[0]];
  const source = [...data.tokens.source.slice(0, -1).map(piece), control(end)];
  const written = [...data.tokens.target.slice(1).map(piece), control(end)];
  const read = [control(start), ...written.slice(0, -1)];
  return {
    encoder: {
      name: "Encoder", queries: source, keys: source, sides: ["token", "draws on"],
      caption: "Self-attention of the encoder: every token of the source draws on all others, before and after it.",
    },
    decoder: {
      name: "Decoder", queries: read, keys: read, sides: ["last token read", "draws on"],
      caption: "Masked self-attention of the decoder: a step sees what has been written so far, and nothing later.",
    },
    cross: {
      name: "Cross", queries: written, keys: source, sides: ["writes", "looks at"],
      caption: "The decoder looks at the source: a row is the step that writes the token, not the one that reads it.",
    },
  };
}

function visible(text) {
  const bare = text.replace(/^ (?=.)/s, "");
  return /^\s*$/.test(bare) ? bare.replaceAll("\n", "⏎").replace(/\s/g, "␣") || "␣" : bare;
}

function make(name, { text, on, style, ...attributes } = {}, ...children) {
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

function draw(name, { style, ...attributes }) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  if (style) node.style.cssText = style;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

const view = () => VIEWS[state.view];
const layers = () => data.maps[state.view];
const nHeads = () => layers()[0].length;
const weight = (layer, head, query, key) => layers()[layer][head][query][key] / data.scale;
const color = (head) => `--color: var(--head-${head % COLORS})`;
const percent = (share) => `${(share * 100).toFixed(share < 0.0995 ? 1 : 0)} %`;
const largest = (numbers) => numbers.reduce((best, number, at) => (number > numbers[best] ? at : best), 0);

// Move the focus among the items of a group: one stop for Tab, arrows inside.
function rove(items, moves) {
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
const alongRow = (n) => (key, at) =>
  ({ ArrowRight: (at + 1) % n, ArrowLeft: (at + n - 1) % n, Home: 0, End: n - 1 })[key];


// Words

function showAlignment() {
  const { source: sources, target: targets, layer, weights } = data.alignment;
  byId("alignment-note").textContent =
    `Cross-attention of decoder layer ${layer + 1}, averaged over its heads and merged to words.`;
  const ribbon = byId("ribbon");
  const lists = [sources, targets].map((words) => make("ol", { class: "words", dir: "auto" },
    ...words.map((text) => make("li", {}, make("button", { class: "word", type: "button", text })))));
  const picture = draw("svg", { "aria-hidden": "true" });
  ribbon.replaceChildren(picture, ...lists);
  const [top, bottom] = lists.map((list) => [...list.querySelectorAll(".word")]);
  const links = targets.flatMap((_, target) => {
    const row = weights[target].map((number) => number / data.scale);
    const best = largest(row);
    return row.map((share, from) => ({ source: from, target, share, best: from === best }));
  }).filter((link) => link.best || link.share >= 0.1);
  for (const link of links) picture.append((link.path = draw("path", {})));

  const highlight = (side, at) => {
    byId("answer").textContent = at === null ? "Point at a word to see its partners." : answer(side, at);
    const chosen = links.filter((link) => at !== null && link[side] === at);
    const quiet = at !== null;
    lists.forEach((list) => list.classList.toggle("quiet", quiet));
    for (const [name, items] of [["source", top], ["target", bottom]]) {
      items.forEach((item, index) => item.classList.toggle("on",
        name === side ? index === at : chosen.some((link) => link[name] === index)));
    }
    for (const link of links) {
      const rest = link.best ? 0.1 + 0.32 * link.share : 0.22 * link.share;
      link.path.style.opacity = !quiet ? rest : chosen.includes(link) ? 0.2 + 0.55 * link.share : 0.03;
    }
  };
  const answer = (side, at) => {
    const [words, others, other] = side === "source" ? [sources, targets, "target"] : [targets, sources, "source"];
    const found = links.filter((link) => link[side] === at).sort((a, b) => b.share - a.share);
    const list = found.map((link) => `${others[link[other]]} ${percent(link.share)}`).join(", ");
    return `${words[at]} ${side === "source" ? "→" : "←"} ${list || "nothing above 10 %"}`;
  };
  const place = () => {
    ribbon.classList.remove("upright");
    const fits = lists.every((list) => list.scrollWidth <= list.clientWidth + 1);
    ribbon.classList.toggle("upright", !fits);
    const origin = ribbon.getBoundingClientRect();
    const box = (item) => {
      const edges = item.getBoundingClientRect();
      return { x: edges.left - origin.left, y: edges.top - origin.top, width: edges.width, height: edges.height };
    };
    for (const link of links) {
      link.path.setAttribute("d", band(box(top[link.source]), box(bottom[link.target]), link.share, fits));
    }
  };
  [["source", top], ["target", bottom]].forEach(([side, items]) => {
    rove(items, (key, at) => alongRow(items.length)({ ArrowDown: "ArrowRight", ArrowUp: "ArrowLeft" }[key] ?? key, at));
    items.forEach((item, at) => {
      for (const event of ["pointerenter", "focus"]) item.addEventListener(event, () => highlight(side, at));
      for (const event of ["pointerleave", "blur"]) item.addEventListener(event, () => highlight(side, null));
    });
  });
  highlight("source", null);
  place();
  ribbonObserver.disconnect();
  ribbonObserver = new ResizeObserver(place);
  ribbonObserver.observe(ribbon.parentElement);
  ribbon.parentElement.hidden = !links.length;
}
let ribbonObserver = new ResizeObserver(() => {});

// A ribbon from one box to another, as broad as its weight; across (words in rows) or upright (words in columns).
function band(from, to, share, across) {
  const flip = (box) => (across ? box : { x: box.y, y: box.x, width: box.height, height: box.width });
  const [a, b] = [flip(from), flip(to)];
  const breadth = (box) => Math.max(2, (box.width - 10) * share) / 2;
  const [ax, bx, near, far] = [a.x + a.width / 2, b.x + b.width / 2, a.y + a.height + 1, b.y - 1];
  const [aw, bw, middle] = [breadth(a), breadth(b), (near + far) / 2];
  const point = (along, over) => (across ? `${along.toFixed(1)} ${over.toFixed(1)}` : `${over.toFixed(1)} ${along.toFixed(1)}`);
  return `M${point(ax - aw, near)}C${point(ax - aw, middle)} ${point(bx - bw, middle)} ${point(bx - bw, far)}` +
    `L${point(bx + bw, far)}C${point(bx + bw, middle)} ${point(ax + aw, middle)} ${point(ax + aw, near)}Z`;
}


// Tabs, layers, heads

function showTabs() {
  const names = { encoder: "Encoder", decoder: "Decoder", cross: "Cross" };
  const tabs = Object.entries(names).map(([key, name]) => make("button", {
    role: "tab", type: "button", id: `tab-${key}`, "aria-controls": "panel", text: name,
    on: { click: () => state && open(key), focus: () => state && open(key) },
  }));
  byId("tabs").replaceChildren(...tabs);
  rove(tabs, alongRow(tabs.length));
  byId("all-heads").addEventListener("click", () => {
    state.heads = new Set(Array(nHeads()).keys());
    showHeads();
    showLines();
  });
}

function open(key) {
  if (byId("panel").dataset.view === key || !data.maps[key].length) return;
  byId("panel").dataset.view = key;
  Object.assign(state, { view: key, token: null, pinned: false, heads: new Set(Array(data.maps[key][0].length).keys()) });
  state.layer = Math.min(state.layer, layers().length - 1);
  for (const tab of byId("tabs").children) {
    tab.setAttribute("aria-selected", tab.id === `tab-${key}`);
    tab.tabIndex = tab.id === `tab-${key}` ? 0 : -1;
  }
  byId("panel").setAttribute("aria-labelledby", `tab-${key}`);
  byId("caption").textContent = view().caption;
  showLayers();
  makeHeads();
  showGrid();
  makeBipartite();
}

function showLayers() {
  byId("layers").replaceChildren(...layers().map((_, layer) => make("label", {},
    make("input", {
      type: "radio", name: "layer", value: layer, checked: layer === state.layer, "aria-label": `Layer ${layer + 1}`,
      on: { change: () => openLayer(layer) },
    }),
    make("span", { text: layer === 0 ? "Layer 1" : layer + 1, "aria-hidden": "true" }))));
}

function openLayer(layer) {
  state.layer = layer;
  byId("layers").querySelectorAll("input")[layer].checked = true;
  markLayer();
  showHeads();
  showLines();
}

function makeHeads() {
  const buttons = Array.from({ length: nHeads() }, (_, head) => make("button", {
    class: "head", type: "button", style: color(head), title: "Peak: the largest weight of a row, averaged over rows",
    on: { click: () => toggle(head), dblclick: () => alone(head) },
  }, make("span", { text: `Head ${head + 1}` }), make("small", { dir: "auto" })));
  byId("heads").replaceChildren(...buttons);
  rove(buttons, alongRow(buttons.length));
  showHeads();
}

function toggle(head) {
  if (!state.heads.delete(head)) state.heads.add(head);
  showHeads();
  showLines();
}

function alone(head) {
  state.heads = new Set([head]);
  showHeads();
  showLines();
}

// Under each head: what the chosen token looks at most, or else how sharply the head looks on the whole.
function showHeads() {
  [...byId("heads").children].forEach((button, head) => {
    button.setAttribute("aria-pressed", state.heads.has(head));
    button.lastChild.textContent = state.token ? strongest(head) : `peak ${percent(meanPeak(head))}`;
  });
  for (const tile of byId("grid").querySelectorAll(".tile")) {
    tile.classList.toggle("off", !state.heads.has(Number(tile.dataset.head)));
  }
  byId("all-heads").hidden = state.heads.size === nHeads();
}

const meanPeak = (head) => {
  const rows = layers()[state.layer][head];
  return rows.reduce((sum, row) => sum + Math.max(...row), 0) / rows.length / data.scale;
};

function partners(head) {
  const { side, at } = state.token;
  return side === "queries"
    ? view().keys.map((_, key) => weight(state.layer, head, at, key))
    : view().queries.map((_, query) => weight(state.layer, head, query, at));
}

function strongest(head) {
  const shares = partners(head);
  const best = largest(shares);
  return `${opposite()[best].text} ${percent(shares[best])}`;
}

const opposite = () => view()[state.token.side === "queries" ? "keys" : "queries"];


// Lines between tokens

function makeBipartite() {
  const columns = ["queries", "keys"].map((side, at) => make("div", { class: `column ${side}` },
    make("div", { class: "title", text: view().sides[at] }),
    make("div", {}, ...view()[side].map((token, index) => makeToken(token, side, index)))));
  byId("bipartite").replaceChildren(columns[0], draw("svg", { "aria-hidden": "true" }), columns[1]);
  const [queries, keys] = columns.map((column) => [...column.querySelectorAll(".token")]);
  const all = [...queries, ...keys];
  rove(all, (key, at) => {
    const [first, n] = at < queries.length ? [0, queries.length] : [queries.length, keys.length];
    const inside = at - first;
    const across = first ? Math.min(inside, queries.length - 1) : queries.length + Math.min(inside, keys.length - 1);
    const moves = { ArrowDown: Math.min(inside + 1, n - 1) + first, ArrowUp: Math.max(inside - 1, 0) + first,
      Home: first, End: first + n - 1 };
    return key === (first ? "ArrowLeft" : "ArrowRight") ? across : moves[key];
  });
  showLines();
}

function makeToken(token, side, at) {
  const choose = () => state.pinned || select({ side, at });
  const leave = () => state.pinned || select(null);
  const strips = Array.from({ length: nHeads() }, (_, head) => make("i", { style: color(head) }));
  return make("button", {
    class: `token${token.control ? " control" : ""}${token.inner ? " inner" : ""}`, type: "button",
    "data-side": side, "data-at": at, "aria-pressed": "false", title: token.text,
    on: {
      pointerenter: choose, pointerleave: leave, blur: leave,
      focus: () => { if (!state.pinned) select({ side, at }); },
      click: () => {
        const same = state.pinned && state.token.side === side && state.token.at === at;
        state.pinned = !same;
        select({ side, at });
      },
    },
  }, make("bdi", { text: token.text }), make("span", { class: "strips", "aria-hidden": "true" }, ...strips));
}

function select(token) {
  state.token = token;
  showHeads();
  showLines();
  tell();
}

function tell() {
  const heads = [...state.heads].sort((a, b) => a - b);
  byId("status").textContent = !state.token ? "" :
    `${view()[state.token.side][state.token.at].text}: ` + heads.map((head) => `head ${head + 1} ${strongest(head)}`).join(", ");
}

function showLines() {
  const picture = byId("bipartite").querySelector("svg");
  const centers = (side) => tokens(side).map((node) => node.offsetTop + node.offsetHeight / 2);
  const [left, right] = [centers("queries"), centers("keys")];
  const width = picture.clientWidth;
  const spread = Math.min(2.6, 16 / nHeads()); // heads run side by side, so that none hides another
  const lines = [];
  for (const head of state.heads) {
    const shift = (head - (nHeads() - 1) / 2) * spread;
    layers()[state.layer][head].forEach((row, query) => row.forEach((number, key) => {
      const share = number / data.scale;
      if (share < FAINTEST || !concerns(query, key)) return;
      const [y1, y2, middle] = [left[query] + shift, right[key] + shift, width / 2];
      lines.push(draw("path", {
        d: `M0 ${y1.toFixed(1)}C${middle} ${y1.toFixed(1)} ${middle} ${y2.toFixed(1)} ${width} ${y2.toFixed(1)}`,
        style: color(head), opacity: share.toFixed(3), "stroke-width": (0.7 + (spread - 0.5) * share).toFixed(2),
        ...(head < COLORS ? {} : { "stroke-dasharray": "5 3" }), // colors repeat after eight heads, strokes differ
      }));
    }));
  }
  picture.replaceChildren(...lines);
  markTokens();
}

const tokens = (side) => [...byId("bipartite").querySelectorAll(`.${side} .token`)];

function concerns(query, key) {
  return !state.token || (state.token.side === "queries" ? query : key) === state.token.at;
}

function markTokens() {
  for (const side of ["queries", "keys"]) {
    const isPartner = state.token && state.token.side !== side;
    tokens(side).forEach((node, at) => {
      const chosen = state.token?.side === side && state.token.at === at;
      node.classList.toggle("on", chosen);
      node.setAttribute("aria-pressed", chosen && state.pinned);
      node.classList.toggle("partner", Boolean(isPartner));
      node.classList.remove("weak");
    });
    if (isPartner) showStrips(tokens(side));
  }
}

function showStrips(nodes) {
  const shares = Array.from({ length: nHeads() }, (_, head) => partners(head));
  nodes.forEach((node, at) => {
    const here = shares.map((row, head) => (state.heads.has(head) ? row[at] : 0));
    [...node.querySelectorAll("i")].forEach((strip, head) => (strip.style.opacity = here[head].toFixed(3)));
    node.classList.toggle("weak", Math.max(...here) < 0.1);
  });
}


// Heat maps

// From paper to ink through one hue and its neighbors, even in lightness; in the dark from ink to paper.
const RAMPS = {
  light: ["#fbfcfd", "#dcecf3", "#b0d5e5", "#78b6d6", "#4592c4", "#276cae", "#1b478d", "#141f57"],
  dark: ["#151b22", "#17293d", "#174163", "#1c5d8b", "#3480b0", "#63a5cb", "#a3cde1", "#eaf6fa"],
};
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";

function ramp() {
  const stops = RAMPS[isDark() ? "dark" : "light"].map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  return Array.from({ length: 256 }, (_, level) => {
    const place = (level / 255) * (stops.length - 1);
    const at = Math.min(Math.floor(place), stops.length - 2);
    return stops[at].map((low, channel) => low + (stops[at + 1][channel] - low) * (place - at));
  });
}

function paint(canvas, rows) { // one pixel a weight; the style sheet makes it large, unblurred
  const colors = ramp();
  [canvas.width, canvas.height] = [rows[0].length, rows.length];
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  rows.flat().forEach((number, at) => {
    const level = Math.round(255 * Math.sqrt(number / data.scale)); // low weights should be seen too
    image.data.set([...colors[level], 255], at * 4);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

function showScale() {
  paint(byId("scale"), [Array.from({ length: 160 }, (_, at) => (at / 159) ** 2 * data.scale)]);
}

function showGrid() {
  const grid = byId("grid");
  grid.style.gridTemplateColumns = `auto repeat(${nHeads()}, minmax(0, 124px))`;
  const names = Array.from({ length: nHeads() }, (_, head) => make("span", { class: "name dot", style: color(head), text: head + 1 }));
  const tiles = [];
  const rows = layers().flatMap((heads, layer) => [
    make("button", { class: "name layer", type: "button", tabindex: "-1", "data-layer": layer, text: layer + 1, title: `Show layer ${layer + 1}`, on: { click: () => openLayer(layer) } }),
    ...heads.map((weights, head) => {
      const tile = make("button", {
        class: "tile", type: "button", "aria-label": `Layer ${layer + 1}, head ${head + 1}`, title: `Layer ${layer + 1}, head ${head + 1}`,
        "data-layer": layer, "data-head": head, on: { click: () => enlarge(layer, head) },
      }, paint(document.createElement("canvas"), weights));
      tiles.push(tile);
      return tile;
    }),
  ]);
  grid.replaceChildren(make("span", { class: "name layer", text: "layer" }), ...names, ...rows);
  rove(tiles, (key, at) => ({ ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + nHeads() < tiles.length ? at + nHeads() : at,
    ArrowUp: at - nHeads() >= 0 ? at - nHeads() : at, Home: 0, End: tiles.length - 1 })[key]);
  markLayer();
}

function markLayer() {
  byId("grid").querySelectorAll("[data-layer]").forEach((node) => node.classList.toggle("on", Number(node.dataset.layer) === state.layer));
}


// One head, large

function enlarge(layer, head) {
  state.large = { layer, head };
  byId("large-title").textContent = `${view().name} attention · layer ${layer + 1} · head ${head + 1}`;
  if (!byId("large").open) byId("large").showModal();
  const { queries, keys } = view();
  const room = Math.min(1000, innerWidth - 80) - 120;
  const cell = Math.max(14, Math.min(34, Math.floor(room / keys.length), Math.floor((innerHeight - 330) / queries.length)));
  const field = make("div", {
    class: "field", tabindex: "0", role: "application", "aria-label": "Heat map: arrow keys move over its cells",
    on: { pointermove: pointCell, pointerdown: pointCell, keydown: moveCell, focus: () => state.cell ?? showCell(0, 0) },
  }, paint(document.createElement("canvas"), layers()[layer][head]), make("div", { class: "mark", hidden: true }));
  const sides = make("div", { class: "sides" }, ...queries.map(({ text }) => make("span", { text, dir: "auto" })));
  const tops = make("div", { class: "tops" }, ...keys.map(({ text }) => make("span", { text, dir: "auto" })));
  byId("heat").replaceChildren(make("div", {
    class: "sheetgrid", style: `--cell: ${cell}px; --keys: ${keys.length}; --queries: ${queries.length}`,
  }, tops, sides, field));
  byId("readout").textContent = `${view().sides[0]} ↓, ${view().sides[1]} →. Point at a cell for its weight.`;
  state.cell = null;
}

function pointCell(event) {
  const { queries, keys } = view();
  const edges = event.currentTarget.getBoundingClientRect();
  const within = (share, n) => Math.max(0, Math.min(n - 1, Math.floor(share * n)));
  showCell(within((event.clientY - edges.top) / edges.height, queries.length), within((event.clientX - edges.left) / edges.width, keys.length));
}

function moveCell(event) {
  const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [0, 0];
  if (!down && !right) return;
  event.preventDefault();
  const [query, key] = state.cell ?? [0, 0];
  showCell(Math.max(0, Math.min(view().queries.length - 1, query + down)), Math.max(0, Math.min(view().keys.length - 1, key + right)));
}

function showCell(query, key) {
  state.cell = [query, key];
  const { layer, head } = state.large;
  const bold = (token) => make("b", {}, make("bdi", { text: token.text }));
  byId("readout").replaceChildren(bold(view().queries[query]), ` ${view().sides[1]} `, bold(view().keys[key]),
    ` with ${weight(layer, head, query, key).toFixed(4)}`);
  const mark = byId("heat").querySelector(".mark");
  mark.hidden = false;
  mark.style.left = `calc(var(--cell) * ${key})`;
  mark.style.top = `calc(var(--cell) * ${query})`;
  byId("heat").querySelectorAll(".sides span").forEach((label, at) => label.classList.toggle("on", at === query));
  byId("heat").querySelectorAll(".tops span").forEach((label, at) => label.classList.toggle("on", at === key));
}

function step(by) {
  const n = layers().length * nHeads();
  const at = (state.large.layer * nHeads() + state.large.head + by + n) % n;
  enlarge(Math.floor(at / nHeads()), at % nHeads());
}

function showDialog() {
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  byId("close").addEventListener("click", () => byId("large").close());
  byId("large").addEventListener("click", (event) => { if (event.target === byId("large")) byId("large").close(); });
}


showTabs();
showDialog();
new ResizeObserver(() => state && showLines()).observe(byId("bipartite"));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state && !byId("large").open) { state.pinned = false; select(null); }
});

// Heat maps are painted, not styled: they have to be painted again when light and dark change places.
function repaint() {
  if (!state) return;
  showScale();
  showGrid();
  showHeads();
}
prefersDark.addEventListener("change", repaint);

export { make, repaint, showAttention };
