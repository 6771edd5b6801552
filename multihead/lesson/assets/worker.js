// Long computations off the main thread. Where workers are refused (some browsers do, for files), they run here instead.

import { sumOf } from "./engine.js";
import { build, translate } from "./model.js";
import { beamSearch, forcedScores } from "./search.js";
import { END } from "./tokenizer.js";

/** Jobs by name: each takes the model's parts and a request, and may report progress. */
export const JOBS = {
  translate: ({ model, tokenizer }, { text, options }) => translate(model, tokenizer, text, options),

  /** The translation by a changed model, and the change in the log-probability of the one that it made before. */
  outcome: ({ model, tokenizer }, { text, options, source, target, change }) => {
    const total = (what) => sumOf(forcedScores(model, source, target, what));
    return { after: translate(model, tokenizer, text, { ...options, change }).text, difference: total(change) - total() };
  },

  /** The translation by a changed model of the same pieces in the opposite order, and the scores of both orders. */
  reversed: ({ model, tokenizer }, { source, options, change }) => {
    const [own, other] = [source, [...source.slice(0, -1).reverse(), END]].map((ids) => beamSearch(model, ids, { ...options, change }).hypotheses[0]);
    return { text: tokenizer.decode(other.ids).trim(), own: own.score, score: other.score };
  },

  /** Change in the log-probability of a translation when each head is switched off, one after the other. */
  heads: ({ model }, { source, target, names }, report) => {
    const total = (change) => sumOf(forcedScores(model, source, target, change));
    const before = total();
    return names.map((name, done) => {
      report(done / names.length);
      return { name, change: total({ heads: new Set([name]) }) - before };
    });
  },
};

/** Answer jobs inside of a worker. */
export function serveJobs(scope) {
  let parts = null;
  scope.onmessage = ({ data: { id, job, request, model } }) => {
    if (model) {
      parts = build(model);
      return;
    }
    try {
      const answer = JOBS[job](parts, request, (share) => scope.postMessage({ id, share }));
      scope.postMessage({ id, answer });
    } catch (error) {
      scope.postMessage({ id, error: String(error) });
    }
  };
}

/** Runs jobs, in a worker if there can be one. `source` is the script of the worker. */
export class Runner {
  constructor(source, parts, built) {
    this.built = built;
    this.waiting = new Map();
    this.next = 1;
    this.start = () => {
      const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
      this.worker = new Worker(address);
      this.worker.onmessage = ({ data }) => this.receive(data);
      this.worker.onerror = () => this.giveUp();
      this.worker.postMessage({ model: parts });
    };
    try {
      this.start();
    } catch {
      this.worker = null;
    }
  }

  receive({ id, share, answer, error }) {
    const job = this.waiting.get(id);
    if (!job) return;
    if (share !== undefined) return job.report(share);
    this.waiting.delete(id);
    if (error) job.reject(new Error(error));
    else job.resolve(answer);
  }

  /** Run everything that waits here, and all that comes later. */
  giveUp() {
    this.worker = null;
    const waiting = [...this.waiting.values()];
    this.waiting.clear();
    for (const { job, request, report, resolve, reject } of waiting) this.here(job, request, report).then(resolve, reject);
  }

  async here(job, request, report) {
    await new Promise((resolve) => setTimeout(resolve));
    return JOBS[job](this.built, request, report);
  }

  run(job, request, report = () => {}) {
    if (!this.worker) return this.here(job, request, report);
    return new Promise((resolve, reject) => {
      const id = this.next++;
      this.waiting.set(id, { job, request, report, resolve, reject });
      this.worker.postMessage({ id, job, request });
    });
  }

  /** Forget what is under way; a worker cannot be interrupted, so it is replaced. */
  cancel() {
    this.waiting.clear();
    if (!this.worker) return;
    this.worker.terminate();
    this.start();
  }
}
