// Decoding (§6.1): beam search, of which greedy search is a beam of one, with the tree of everything it looked at.

import { logSoftmax } from "./engine.js";
import { END, PAD, START, UNKNOWN } from "./tokenizer.js";

const NEVER_GENERATED = [PAD, UNKNOWN, START];
const MARGIN = 1e-3; // nats; as in translation/search/beam.py
export const MAX_EXTRA = 50; // §6.1: an output is at most this much longer than its input

/** §6.1, after Wu et al. (2016): ((5 + length) / 6)^α, the end symbol counted. */
export const lengthPenalty = (length, alpha) => ((5 + length) / 6) ** alpha;

/**
 * Search for translations of `sourceIds`, which end in the end symbol.
 *
 * Returns {hypotheses, nodes}: finished hypotheses {ids, logProb, score, node}, best first (unfinished ones at the limit
 * if none has finished), and every node of the tree {id, parent, token, logProb, depth, state, score}, where `state` is
 * "live", "finished", "pruned" (outside of the beam, or unable to win) or "truncated". `prefix` forces the first tokens.
 */
export function beamSearch(model, sourceIds, { beam = 4, alpha = 0.6, prefix = [], change, maxExtra = MAX_EXTRA } = {}) {
  const sentence = model.startDecoding(sourceIds, change);
  const limit = Math.min(sourceIds.length + maxExtra, model.config.max_len);
  const nodes = [{ id: 0, parent: null, token: START, logProb: 0, depth: 0, state: "live", score: null }];
  const finished = [];
  const truncated = [];
  let live = [{ node: nodes[0], cache: undefined }];
  for (let length = 1; live.length; length++) {
    const candidates = live.flatMap(({ node, cache }) => continuations(model, sentence, node, cache, beam + 1, prefix));
    candidates.sort((a, b) => b.logProb - a.logProb);
    live = [];
    for (const [place, { parent, token, logProb, cache }] of candidates.slice(0, beam + 1).entries()) {
      const node = { id: nodes.length, parent: parent.id, token, logProb, depth: length, state: "pruned", score: null };
      nodes.push(node);
      if (place >= beam) continue;
      node.score = logProb / lengthPenalty(length, alpha);
      if (token === END) {
        node.state = "finished";
        finished.push(node);
        finished.sort((a, b) => b.score - a.score);
      } else live.push({ node, cache });
    }
    // A log-probability only falls, so a hypothesis cannot do better than its own over the largest penalty.
    const needed = finished.length ? finished[0].score * lengthPenalty(limit, alpha) - MARGIN : -Infinity;
    live = live.filter(({ node }) => node.logProb >= needed);
    for (const { node } of live) node.state = length >= limit ? "truncated" : "live";
    if (length >= limit) {
      truncated.push(...live.map(({ node }) => node));
      live = [];
    }
  }
  truncated.sort((a, b) => b.score - a.score);
  const best = (finished.length ? finished : truncated).map((node) => hypothesis(nodes, node));
  return { hypotheses: best, nodes };
}

/** The likeliest continuations of a hypothesis. */
function continuations(model, sentence, parent, cache, most, prefix) {
  const [logProbs, next] = model.decodeStep(parent.token, sentence, cache);
  const forced = prefix[parent.depth];
  if (forced !== undefined) return [{ parent, token: forced, logProb: parent.logProb + logProbs[forced], cache: next }];
  for (const id of NEVER_GENERATED) logProbs[id] = -Infinity;
  return largest(logProbs, most).map((token) => ({ parent, token, logProb: parent.logProb + logProbs[token], cache: next }));
}

/** Indices of the `n` largest numbers, largest first. */
export function largest(numbers, n) {
  const best = [];
  for (let i = 0; i < numbers.length; i++) {
    if (best.length === n && numbers[i] <= numbers[best[n - 1]]) continue;
    let at = best.length;
    while (at > 0 && numbers[i] > numbers[best[at - 1]]) at--;
    best.splice(at, 0, i);
    if (best.length > n) best.pop();
  }
  return best;
}

function hypothesis(nodes, node) {
  const ids = [];
  for (let at = node; at.parent !== null; at = nodes[at.parent]) ids.unshift(at.token);
  const isFinished = ids.at(-1) === END;
  return { ids: isFinished ? ids.slice(0, -1) : ids, logProb: node.logProb, score: node.score, node: node.id, isFinished };
}

/** Scores of finished nodes under another α, best first: the same search, ranked again. */
export function rerank(nodes, alpha) {
  return nodes
    .filter((node) => node.state === "finished")
    .map((node) => ({ node: node.id, score: node.logProb / lengthPenalty(node.depth, alpha) }))
    .sort((a, b) => b.score - a.score);
}

/** Log-probability of each token of a given translation and of its end; all rows are computed at once. */
export function forcedScores(model, sourceIds, targetIds, change) {
  const V = model.config.vocab_size;
  const logits = model.forward(sourceIds, [START, ...targetIds], undefined, change);
  return [...targetIds, END].map((id, row) => logSoftmax(logits.subarray(row * V, (row + 1) * V))[id]);
}
