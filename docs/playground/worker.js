// Runs the network. Messages: {kind: "read", text}, {kind: "write", temperature} and {kind: "look", state, head}.
// Every answer has the character of the last step, the most probable next characters, and the fast weights.
let network, tokens, logits, before, look = { state: 0, head: 0 };

function memory() { return network.memory.buffer; }

function bytes(base64) { return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)); }

// The tokens in the weight file: a byte with the size, then the text in UTF-8.
function readTokens() {
  const text = new Uint8Array(memory(), network.text_at(), network.text_size()), all = [];
  for (let at = 0; at < text.length; at += 1 + text[at]) {
    all.push(new TextDecoder().decode(text.slice(at + 1, at + 1 + text[at])));
  }
  return all;
}

function start(program, weights) {
  // The network reads no file and prints nothing: the functions of the system are never called.
  const system = new Proxy({}, { get: () => () => 0 });
  network = new WebAssembly.Instance(new WebAssembly.Module(program), new Proxy({}, { get: () => system })).exports;
  network._initialize?.();
  const place = network.allocate(weights.length);
  new Uint8Array(memory(), place, weights.length).set(weights);
  const error = network.open_weights(place, weights.length);
  if (error) throw new Error(`The weights cannot be read: error ${error}.`);
  tokens = readTokens();
}

function fastWeights() {
  const { place, rows, columns } = STATES[look.state];
  const first = network.state_at() + place + 4 * look.head * rows * columns;
  return new Float32Array(memory(), first, rows * columns).slice();
}

function step(token) {
  before = fastWeights();
  if (network.step(token)) throw new Error(`Token ${token} is outside of the vocabulary.`);
  logits = new Float32Array(memory(), network.logits_at(), tokens.length);
}

function read(text) {
  network.reset();
  logits = null;
  before = fastWeights();
  const known = [...text].filter((character) => tokens.includes(character));
  for (const character of known) step(tokens.indexOf(character));
  return known.join("");
}

function probabilities(temperature) {
  const most = Math.max(...logits), weights = Array.from(logits, (x) => Math.exp((x - most) / temperature));
  const sum = weights.reduce((a, b) => a + b);
  return weights.map((x) => x / sum);
}

function write(temperature) {
  const p = probabilities(Math.max(temperature, 1e-3));
  let rest = Math.random(), next = p.findIndex((x) => (rest -= x) < 0);
  if (next < 0) next = p.indexOf(Math.max(...p));
  step(next);
  return tokens[next];
}

function answer(kind, text) {
  const W = fastWeights(), top = [];
  if (logits) {
    const p = probabilities(1);
    const order = p.map((x, n) => n).sort((a, b) => p[b] - p[a]);
    top.push(...order.slice(0, 5).map((n) => [tokens[n], p[n]]));
  }
  postMessage({ kind, text, W, change: W.map((x, n) => x - before[n]), top });
}

onmessage = ({ data }) => {
  try {
    if (data.kind === "start") start(bytes(data.program), bytes(data.weights));
    else if (data.kind === "read") answer("read", read(data.text));
    else if (data.kind === "write" && logits) answer("write", write(data.temperature));
    else if (data.kind === "look") {
      look = data;
      before = fastWeights();
      answer("look", "");
    }
  } catch (error) {
    postMessage({ kind: "error", text: String(error.message ?? error) });
  }
};
