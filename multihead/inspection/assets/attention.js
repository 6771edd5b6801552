// The viewer of attention: what every head of every layer looks at, in one sentence and its translation.

import { paint, prefersDark } from "./colors.js";
import { alongRow, byId, chance, draw, largest, make, percent, rove, visible } from "./dom.js";
import { close, isOpen, listen, repaintHead, showHead } from "./head.js";
import { drawMap } from "./map.js";

const COLORS = 8;
const FAINTEST = 0.02; // a line below this weight could not be seen

// What is shown now: the data of one sentence, its three views, and what the reader has chosen.
let data, VIEWS, state;

// Show a sentence: the object that `multihead inspect` writes and that POST /attention answers with.
function showAttention(newData) {
  data = newData;
  VIEWS = makeViews();
  const [view, heads] = state ? [state.view, state.heads] : ["cross", null];
  state = { view, layer: data.alignment.layer, heads: new Set(), token: null, pinned: false };
  close();
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
  const chances = data.probabilities.tokens;
  const step = (at) => `Step ${at + 1} has read ${quote(read[at])} and writes ${quote(written[at])}` +
    (chances.length ? `, with a probability of ${chance(chances[at])}.` : ".");
  const quote = (token) => `“${token.text}”`;
  const next = written.length > 1 ? `, and the row of ${quote(written[0])} writes ${quote(written[1])}` : "";
  const before = written.length > 1 ? `, and the row of ${quote(written[1])} has read ${quote(written[0])}` : "";
  return {
    encoder: {
      name: "Encoder self-attention", queries: source, keys: source, sides: ["token", "draws on"], axes: ["tokens of the source", "the tokens that they draw on"], isMasked: () => false,
      caption: "Self-attention of the encoder. A row is a token of the source; it draws on all tokens, before and after it.",
      step: () => "",
    },
    decoder: {
      name: "Decoder self-attention", queries: read, keys: read, sides: ["last token read", "draws on"], axes: ["steps, named after the last token read", "the tokens that they draw on"],
      isMasked: (query, key) => key > query,
      caption: `Masked self-attention of the decoder. A row is a step, named after the last token that it has read: the row of ${quote(read[0])} writes ${quote(written[0])}${next}. ` +
        "A step sees what has been written so far. Later tokens are masked (hatched): their scores are −∞, so their weights are 0.",
      step,
    },
    cross: {
      name: "Cross-attention", queries: written, keys: source, sides: ["writes", "looks at"], axes: ["steps, named after the token written", "tokens of the source"], isMasked: () => false,
      caption: `Cross-attention from the decoder to the source. A row is a step, named after the token that it writes: the row of ${quote(written[0])} has read ${quote(read[0])}${before}.`,
      step,
    },
  };
}

const view = () => VIEWS[state.view];
const layers = () => data.maps[state.view];
const nHeads = () => layers()[0].length;
const weight = (layer, head, query, key) => layers()[layer][head][query][key] / data.scale;
const sharesOf = (layer, head) => layers()[layer][head].map((row) => row.map((number) => number / data.scale));
const color = (head) => `--color: var(--head-${head % COLORS})`;


// Words

function showAlignment() {
  const { source: sources, target: targets, layer, weights } = data.alignment;
  byId("alignment-note").textContent =
    `Cross-attention of decoder layer ${layer + 1}, averaged over its heads and merged to words.`;
  const ribbon = byId("ribbon");
  const chances = data.probabilities.words;
  byId("chances").textContent = chances.length ? "Under each word: its probability, given the words before it." : "";
  const probability = (words, at) => (words === targets && chances.length ? [make("small", { class: "chance", text: chance(chances[at]) })] : []);
  const lists = [sources, targets].map((words) => make("ol", { class: "words", dir: "auto" },
    ...words.map((text, at) => make("li", {}, make("button", { class: "word", type: "button", text }), ...probability(words, at)))));
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
    return `${words[at]} ${side === "source" ? "→" : "←"} ${list || "nothing above 10%"}`;
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
  showMap();
  makeHeads();
  showGrid();
  makeBipartite();
  tell();
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
  showMap();
  showHeads();
  showLines();
}

// Where in Figure 1 the shown layer is.
function showMap() {
  const sizes = Object.fromEntries(Object.entries(data.maps).map(([name, maps]) => [name, maps.length]));
  byId("map").replaceChildren(drawMap({ sizes, lit: state.view, layer: state.layer, open }));
}

function makeHeads() {
  const buttons = Array.from({ length: nHeads() }, (_, head) => make("button", {
    class: "head", type: "button", style: color(head),
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
  byId("step").textContent = !state.token ? "Point at a token to follow its lines." : state.token.side === "queries" ? view().step(state.token.at) : "";
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


// Every head at a glance

function showScale() {
  paint(byId("scale"), [Array.from({ length: 160 }, (_, at) => at / 159)]);
}

function showGrid() {
  const grid = byId("grid");
  grid.style.gridTemplateColumns = `auto repeat(${nHeads()}, minmax(0, 124px))`;
  const names = Array.from({ length: nHeads() }, (_, head) => make("span", { class: "name dot", style: color(head), text: head + 1 }));
  const tiles = [];
  const rows = layers().flatMap((heads, layer) => [
    make("button", { class: "name layer", type: "button", tabindex: "-1", "data-layer": layer, text: layer + 1, "aria-label": `Show layer ${layer + 1}`, on: { click: () => openLayer(layer) } }),
    ...heads.map((_, head) => {
      const tile = make("button", {
        class: "tile", type: "button", "aria-label": `Layer ${layer + 1}, head ${head + 1}`,
        "data-layer": layer, "data-head": head, on: { click: () => enlarge(layer, head) },
      }, paint(document.createElement("canvas"), sharesOf(layer, head), view().isMasked));
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
  showHead({
    title: `${view().name} · layer ${layer + 1} · head ${head + 1}`,
    file: `${state.view}-layer-${layer + 1}-head-${head + 1}`,
    queries: view().queries, keys: view().keys, sides: view().sides, axes: view().axes, isMasked: view().isMasked, rows: sharesOf(layer, head),
  });
}

function step(by) {
  const n = layers().length * nHeads();
  const at = (state.large.layer * nHeads() + state.large.head + by + n) % n;
  enlarge(Math.floor(at / nHeads()), at % nHeads());
}


showTabs();
listen(step);
new ResizeObserver(() => state && showLines()).observe(byId("bipartite"));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state && !isOpen()) { state.pinned = false; select(null); }
});

// Heat maps are painted, not styled: they have to be painted again when light and dark change places.
function repaint() {
  if (!state) return;
  showScale();
  showGrid();
  showHeads();
  repaintHead();
}
prefersDark.addEventListener("change", repaint);

export { repaint, showAttention };
