// Runs the networks. The first message is {kind: "start", networks, passage}. The others are answered by the state of all
// networks after the same letters: {kind: "read", text, position}, and {kind: "write", text, writer, temperature}, which
// appends a letter. Both also have `look`, the layer and the head whose tensors are sent, and `start`: 1 if the networks
// have read the passage before the text, 0 if their memories are empty.
let networks, letters = [], started = 0;

function bytes(base64) { return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)); }

class Network {
  constructor({ program, weights, places }, passage) {
    // The network reads no file and prints nothing: the functions of the system are never called.
    const system = new Proxy({}, { get: () => () => 0 });
    const module = new WebAssembly.Module(bytes(program));
    this.program = new WebAssembly.Instance(module, new Proxy({}, { get: () => system })).exports;
    this.places = places;
    this.program._initialize?.();
    this.open(bytes(weights));
    this.tokens = this.readTokens();
    this.starts = [this.copy()];
    this.reset(0);
    for (const letter of passage) this.step(letter);
    this.starts.push(this.copy());
  }

  state() { return new Uint8Array(this.program.memory.buffer, this.program.state_at(), this.program.state_size()); }

  copy() { return { state: this.state().slice(), logits: this.logits ?? null }; }

  open(weights) {
    const place = this.program.allocate(weights.length);
    new Uint8Array(this.program.memory.buffer, place, weights.length).set(weights);
    const error = this.program.open_weights(place, weights.length);
    if (error) throw new Error(`The weights cannot be read: error ${error}.`);
  }

  // The tokens in the weight file: a byte with the size, then the text in UTF-8.
  readTokens() {
    const all = [], text = new Uint8Array(this.program.memory.buffer, this.program.text_at(), this.program.text_size());
    for (let at = 0; at < text.length; at += 1 + text[at]) {
      all.push(new TextDecoder().decode(text.slice(at + 1, at + 1 + text[at])));
    }
    return all;
  }

  reset(start) {
    this.state().set(this.starts[start].state);
    this.logits = this.starts[start].logits;
    this.bits = [];
  }

  // Reads a letter, and notes its bits before that. The first letter has no bits for an empty memory.
  step(letter) {
    const token = this.tokens.indexOf(letter);
    this.bits.push(this.logits && -Math.log2(this.probabilities(1)[token]));
    if (this.program.step(token)) throw new Error(`Token ${token} is outside of the vocabulary.`);
    this.logits = this.floats(this.program.logits_at(), this.tokens.length);
  }

  floats(place, size) { return new Float32Array(this.program.memory.buffer, place, size).slice(); }

  probabilities(temperature) {
    const most = Math.max(...this.logits), weights = Array.from(this.logits, (x) => Math.exp((x - most) / temperature));
    const sum = weights.reduce((a, b) => a + b);
    return weights.map((x) => x / sum);
  }

  sample(temperature) {
    const p = this.probabilities(Math.max(temperature, 1e-3));
    let rest = Math.random(), next = p.findIndex((x) => (rest -= x) < 0);
    if (next < 0) next = p.indexOf(Math.max(...p));
    return this.tokens[next];
  }

  top() {
    if (!this.logits) return [];
    const p = this.probabilities(1), order = p.map((x, n) => n).sort((a, b) => p[b] - p[a]);
    return order.slice(0, 5).map((n) => [this.tokens[n], p[n]]);
  }

  view({ layer, head }, name) {
    const { place, rows, columns } = this.places[layer][name];
    const first = this.program.state_at() + place + 4 * head * rows * columns;
    return { numbers: this.floats(first, rows * columns), rows, columns };
  }

  seen(look) {
    const views = Object.keys(this.places[look.layer]).map((name) => [name, this.view(look, name)]);
    return { bits: this.bits.slice(), top: this.top(), views: Object.fromEntries(views) };
  }
}

// Reads the first letters. The networks continue from the letters that they have read if those are still the same.
function read(next, start) {
  const isLonger = letters.length <= next.length && letters.every((letter, n) => letter === next[n]);
  if (!isLonger || start !== started) {
    networks.forEach((network) => network.reset(start));
    letters = [];
    started = start;
  }
  for (const letter of next.slice(letters.length)) networks.forEach((network) => network.step(letter));
  letters = next;
}

function answer({ kind, text, position, writer, temperature, look, start }) {
  const known = [...text].filter((letter) => networks[0].tokens.includes(letter));
  const end = kind === "write" ? known.length : Math.max(0, Math.min(position, known.length));
  read(known.slice(0, end), start);
  if (kind === "write" && networks[writer].logits) {
    known.push(networks[writer].sample(temperature));
    read(known.slice(), start);
  }
  const models = networks.map((network) => network.seen(look));
  postMessage({ kind, text: known.join(""), position: letters.length, models });
}

onmessage = ({ data }) => {
  try {
    if (data.kind === "start") networks = data.networks.map((network) => new Network(network, data.passage));
    else answer(data);
  } catch (error) {
    postMessage({ kind: "error", text: String(error.message ?? error) });
  }
};
