// Functions of all pages.
const at = (id) => document.getElementById(id);
const BLOCKED = "Your browser blocks this page as a local file: run `python -m http.server` in its folder, and open http://localhost:8000/";

function bytes(base64) { return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)); }

function say(text) { at("message").textContent = text; }

function fail(error) {
  const file = location.protocol === "file:" ? BLOCKED + location.pathname.split("/").at(-1) : "";
  say(file || `The page does not run here: ${error?.message ?? error}`);
  at("controls").disabled = true;
  at("status").textContent = "";
}

addEventListener("error", ({ error }) => error && fail(error));

function hasWebAssembly() {
  if (typeof WebAssembly === "object") return true;
  say("This browser does not run WebAssembly. Open the page in a current Firefox, Chrome, Edge or Safari.");
  at("status").textContent = "";
  return false;
}

// A letter as the pages show it.
function visible(letter) { return { " ": "\u2423", "\n": "\u21b5" }[letter] ?? letter ?? ""; }

function inkOf(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).split(",").map(Number); }

function largest(numbers) { return numbers.reduce((a, x) => Math.max(a, Math.abs(x)), 0); }

// Draws a matrix. The opacity of a cell is its magnitude relative to `most`.
function draw(canvas, numbers, rows, columns, most = largest(numbers)) {
  const plus = inkOf("--plus"), minus = inkOf("--minus"), image = new ImageData(columns, rows);
  [canvas.width, canvas.height] = [columns, rows];
  numbers.forEach((x, n) => image.data.set([...(x > 0 ? plus : minus), most ? (255 * Math.abs(x)) / most : 0], 4 * n));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

const ROUNDING = 1e-4;

// Numbers that are small relative to `most` are errors of rounding.
function drawFigure(figure, { numbers, rows, columns }, what, most = largest(numbers)) {
  const own = largest(numbers), canvas = figure.querySelector("canvas");
  const size = own > ROUNDING * most ? `\u00b1${own.toPrecision(3)}` : "0";
  draw(canvas, numbers, rows, columns, most);
  figure.querySelector("output").textContent = size;
  canvas.setAttribute("aria-label", `${what}: ${rows} rows, ${columns} columns, largest number ${size}`);
}

// Inside of a page that has a title, the frame is as high as its content.
function fitFrame() {
  if (!window.frameElement) return;
  document.querySelector("h1").remove();
  document.documentElement.style.overflowY = "hidden";
  const fit = () => (frameElement.style.height = `${document.body.offsetHeight + 2}px`);
  // In the next frame: a change of the observed size in the observer is an error.
  new ResizeObserver(() => requestAnimationFrame(fit)).observe(document.body);
}

function onThemeChange(redraw) { matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw); }
