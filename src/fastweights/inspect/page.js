"use strict";
const { tokens, memories } = JSON.parse(document.getElementById("data").textContent);
const FULL = 127, T = tokens.length;
const [memory, head, text, series, map] = ["memory", "head", "text", "series", "map"].map(id => document.getElementById(id));
const say = (id, words) => { document.getElementById(id).textContent = words; };
const number = x => x === 0 ? "0" : Math.abs(x) < 0.001 || Math.abs(x) >= 10000 ? x.toExponential(1) : x.toPrecision(3);
const shown = token => ({ "\n": "\u21b5\n", "\t": "\u21e5" })[token] ?? token;
let chosen = T - 1, rows, scale;

function attention(t, i) { return rows[t * T + i] / FULL; }

function colour(share) {
  // Light enough for the token in front of it to be legible.
  return `rgba(var(--${share < 0 ? "minus" : "plus"}), ${(0.6 * Math.min(1, Math.abs(share))).toFixed(3)})`;
}

function option(select, label, value) { select.add(new Option(label, value)); }

function showMemory() {
  const found = memories[memory.value], before = head.value;
  head.replaceChildren();
  found.attention.forEach((_, n) => option(head, n + 1, n));
  head.value = before && before < found.attention.length ? before : 0;
  say("kind", found.cell);
  say("meaning", found.signed
    ? "Rows are reads, columns are earlier time steps, both from 1 at the top left. Colour: weight of the value of a time step in a read."
    : "Rows are reads, columns are earlier time steps, both from 1 at the top left. Colour: norm of the derivative of a read by the inputs of a time step.");
  showHead();
}

function showHead() {
  const found = memories[memory.value];
  rows = Int8Array.from(atob(found.attention[head.value]), c => c.charCodeAt(0));
  scale = found.scale[head.value];
  series.replaceChildren(...Object.entries(found.series).map(([name, all]) => chart(name, all[head.value], found.limits[name])));
  drawMap();
  choose(chosen);
}

function chart(name, values, limit) {
  const figure = document.createElement("figure"), top = limit ?? (Math.max(...values, 0) || 1), low = Math.min(...values, 0);
  const points = values.map((y, x) => `${x + 0.5},${(100 * (top - y) / (top - low)).toFixed(2)}`).join(" ");
  figure.innerHTML = `<figcaption><span></span><output></output></figcaption>
    <svg viewBox="0 -3 ${T} 106" preserveAspectRatio="none" role="img"><polyline class="curve" points="${points}"/>
    <line class="here" y1="-3" y2="103"/></svg><small><span>step 1</span><span></span><span>step ${T}</span></small>`;
  figure.querySelector("small").children[1].textContent = `${number(low)} to ${number(top)}`;
  figure.querySelector("span").textContent = limit ? `${name} (at most ${limit})` : name;
  figure.querySelector("svg").setAttribute("aria-label", `${name} over the tokens`);
  figure.querySelector("svg").onclick = event => choose(place(event, T));
  figure.values = values;
  return figure;
}

function place(event, size, vertical) {
  const box = event.currentTarget.getBoundingClientRect();
  const share = vertical ? (event.clientY - box.top) / box.height : (event.clientX - box.left) / box.width;
  return Math.max(0, Math.min(size - 1, Math.floor(share * size)));
}

function drawMap() {
  map.width = map.height = T;
  const pen = map.getContext("2d"), style = getComputedStyle(document.documentElement);
  const [plus, minus] = ["--plus", "--minus"].map(name => style.getPropertyValue(name).split(",").map(Number));
  const image = pen.createImageData(T, T);
  for (let n = 0; n < T * T; n++) {
    const share = rows[n] / FULL;
    image.data.set([...(share < 0 ? minus : plus), 255 * Math.sqrt(Math.abs(share))], 4 * n);
  }
  pen.putImageData(image, 0, 0);
}

function choose(t) {
  chosen = t;
  let most = 0;
  for (let i = 0; i <= t; i++) most = Math.max(most, Math.abs(attention(t, i)));
  [...text.children].forEach((span, i) => {
    span.style.background = i <= t && most ? colour(attention(t, i) / most) : "";
    span.classList.toggle("chosen", i === t);
  });
  for (const figure of series.children) {
    figure.querySelector("output").textContent = number(figure.values[t]);
    for (const end of ["x1", "x2"]) figure.querySelector(".here").setAttribute(end, t + 0.5);
  }
  say("now", `Time step ${t + 1} of ${T}; the largest weight is ${number(most * scale)}.`);
}

memories.forEach((found, n) => option(memory, `${n + 1}: ${found.name || "the model"}`, n));
tokens.forEach((token, t) => {
  const span = document.createElement("span");
  span.textContent = shown(token);
  span.tabIndex = t === T - 1 ? 0 : -1;
  span.onmouseenter = span.onfocus = () => choose(t);
  span.onkeydown = event => {
    const to = { ArrowLeft: t - 1, ArrowRight: t + 1, Home: 0, End: T - 1 }[event.key];
    if (to === undefined || !text.children[to]) return;
    event.preventDefault();
    text.children[to].focus();
  };
  text.append(span);
});
memory.onchange = showMemory;
head.onchange = showHead;
map.onclick = map.onmousemove = event => choose(place(event, T, true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMap);
showMemory();
