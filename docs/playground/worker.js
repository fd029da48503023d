// Runs the networks. The first message is {kind: "start", networks}. The others are answered by the state of all networks
// after the same letters: {kind: "read", text, position, look}, and {kind: "write", text, writer, temperature, look},
// which appends a letter. `look` is the layer and the head whose tensors are sent.
let networks, letters = [];

function bytes(base64) { return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)); }

class Network {
  constructor({ program, weights, places }) {
    // The network reads no file and prints nothing: the functions of the system are never called.
    const system = new Proxy({}, { get: () => () => 0 });
    const module = new WebAssembly.Module(bytes(program));
    this.program = new WebAssembly.Instance(module, new Proxy({}, { get: () => system })).exports;
    this.places = places;
    this.program._initialize?.();
    this.open(bytes(weights));
    this.tokens = this.readTokens();
    this.reset();
  }

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

  reset() {
    this.program.reset();
    this.bits = [];
    this.logits = null;
  }

  // Reads a letter, and notes its bits before that.
  step(letter) {
    const token = this.tokens.indexOf(letter);
    this.bits.push(this.logits ? -Math.log2(this.probabilities(1)[token]) : 0);
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
function read(next) {
  const isContinued = letters.length <= next.length && letters.every((letter, n) => letter === next[n]);
  if (!isContinued) {
    networks.forEach((network) => network.reset());
    letters = [];
  }
  for (const letter of next.slice(letters.length)) networks.forEach((network) => network.step(letter));
  letters = next;
}

function answer({ kind, text, position, writer, temperature, look }) {
  const known = [...text].filter((letter) => networks[0].tokens.includes(letter));
  const end = kind === "write" ? known.length : Math.max(0, Math.min(position, known.length));
  read(known.slice(0, end));
  if (kind === "write" && end) {
    known.push(networks[writer].sample(temperature));
    read(known.slice());
  }
  const models = networks.map((network) => network.seen(look));
  postMessage({ kind, text: known.join(""), position: letters.length, models });
}

onmessage = ({ data }) => {
  try {
    if (data.kind === "start") networks = data.networks.map((network) => new Network(network));
    else answer(data);
  } catch (error) {
    postMessage({ kind: "error", text: String(error.message ?? error) });
  }
};
