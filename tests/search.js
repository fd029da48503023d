// Runs the search of a built site: `node search.js FOLDER QUERY ...` prints the pages of each query, best first, as JSON.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [folder, ...queries] = process.argv.slice(2);
const page = { readyState: "loading", addEventListener() {}, getElementById: () => null, documentElement: {} };
const world = vm.createContext({ console, document: page, SPHINX_HIGHLIGHT_ENABLED: false });
world.window = world;
const run = (file) => vm.runInContext(fs.readFileSync(path.join(folder, file), "utf-8"), world, { filename: file });
for (const name of ["documentation_options", "doctools", "language_data", "searchtools"]) run(`_static/${name}.js`);
run("searchindex.js");
for (const query of queries) {
  world.query = query;
  // The page of results shows the last entry first.
  const results = vm.runInContext("Search._performSearch(...Search._parseQuery(query))", world);
  console.log(JSON.stringify(results.map(([name]) => name).reverse()));
}
