// Search a built site as its pages do, with their own worker, outside of a browser.
//
//     echo '["autograd", "tensor map"]' | node docs/checks/search_site.js site
//
// Reads a list of queries and writes, for each, the addresses of the pages found, best first.
"use strict";

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const site = process.argv[2];
const workers = path.join(site, "assets/javascripts/workers");
const worker = fs.readdirSync(workers).find((name) => /^search\..*\.js$/.test(name));
const index = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json")));

let listener, receive;
const context = {
  console,
  URL,
  addEventListener: (kind, handler) => (listener = handler),
  postMessage: (message) => receive(message),
};
context.self = context;
vm.runInNewContext(fs.readFileSync(path.join(workers, worker), "utf8"), context);

function ask(message) {
  return new Promise((resolve) => {
    receive = resolve;
    listener({ data: message });
  });
}

async function main() {
  const SETUP = 0, QUERY = 2;
  await ask({ type: SETUP, data: { ...index, options: {} } });
  const found = {};
  for (const query of JSON.parse(fs.readFileSync(0))) {
    const { data } = await ask({ type: QUERY, data: query });
    found[query] = data.items.map((item) => item[0].location.split("#")[0]);
  }
  console.log(JSON.stringify(found));
}

main();
