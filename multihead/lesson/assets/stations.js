// The stations in their order, from a sentence to the last word of its translation.
//
// A station is {key, map, parts, paper, formula, code, render(view)}: the part of Figure 1 that it lights, the parts that lead
// to it, its place in the paper, the names of its formulas, the excerpt of our code beside it. `sides`, `layers`, `heads`
// and `steps` say what a reader may choose; `side` is chosen on arrival. Its texts are `station.<key>.title`, `.text`,
// `.question` and `.answer`.

import { INPUT_STATIONS } from "./input.js";
import { ATTENTION_STATIONS } from "./attention.js";
import { LAYER_STATIONS } from "./layers.js";
import { DECODING_STATIONS } from "./decoding.js";
import { BEAM_STATIONS } from "./beam.js";
import { HEAD_STATIONS } from "./heads.js";
import { WHAT_IF_STATIONS } from "./whatif.js";
import { TRAINING_STATIONS } from "./training.js";

export const STATIONS = [
  ...INPUT_STATIONS, // 0 sentence, 1 pieces, 2 embedding, 3 positions
  ...ATTENTION_STATIONS, // 4 projections, 5 products, 6 scores, 7 mask, 8 softmax, 9 mix, 10 concat
  ...LAYER_STATIONS, // 11 norm, 12 feed-forward, 13 layers, 14 memory
  ...DECODING_STATIONS, // 15 step, 16 logits, 17 loop
  ...BEAM_STATIONS, // 18
  ...HEAD_STATIONS, // 19
  ...WHAT_IF_STATIONS, // 20
  ...TRAINING_STATIONS, // 21
];
