// Open every page of a built site in Chromium, on a desktop and on a phone, in both color schemes,
// and report boxes that scroll sideways, findings of axe, and errors of scripts.
//
//     python -m mkdocs build
//     cd docs/checks && npm install
//     node check_pages.js ../../site [--screenshots DIR] [--only PATTERN] [--every N [--offset K]]
//         [--no-axe]
//
// --only opens the pages whose address matches a regular expression; --every each Nth page, from the
// Kth on. CHROMIUM names the browser. Exit code 1 if there is a finding.
"use strict";

const fs = require("fs");
const http = require("http");
const path = require("path");
const puppeteer = require("puppeteer-core");

const { positionals, values } = require("util").parseArgs({
  allowPositionals: true,
  options: {
    screenshots: { type: "string" },
    only: { type: "string", default: "" },
    every: { type: "string", default: "1" },
    offset: { type: "string", default: "0" },
    "no-axe": { type: "boolean" },
  },
});
const site = path.resolve(positionals[0]);
const axe = values["no-axe"] ? "" : fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const BROWSER = process.env.CHROMIUM || "/usr/bin/chromium";
const DESKTOP = 1280, PHONE = 390;
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml" };

/** Addresses of all pages, but for redirects and the page of errors. */
function addresses(folder = site) {
  return fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) return addresses(file);
    if (entry.name !== "index.html" || fs.readFileSync(file, "utf8").includes('http-equiv="refresh"')) return [];
    return [path.relative(site, folder).replaceAll(path.sep, "/")];
  });
}

function serve(request, response) {
  let file = path.join(site, decodeURIComponent(new URL(request.url, "http://localhost").pathname));
  if (fs.existsSync(file) && fs.statSync(file).isDirectory()) file = path.join(file, "index.html");
  if (!fs.existsSync(file)) return response.writeHead(404).end();
  response.writeHead(200, { "content-type": TYPES[path.extname(file)] || "application/octet-stream" });
  response.end(fs.readFileSync(file));
}

/** In the page: boxes wider than their frame, and the page itself if it scrolls sideways. */
function wideBoxes(whole) {
  const found = [];
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth + 1) found.push(`the page is ${root.scrollWidth} wide`);
  if (whole)
    for (const box of document.querySelectorAll("article pre, article pre > code, article table, article div")) {
      const scrolls = ["auto", "scroll"].includes(getComputedStyle(box).overflowX);
      if (scrolls && box.clientWidth && box.scrollWidth > box.clientWidth + 1)
        found.push(`${box.tagName.toLowerCase()} ${box.scrollWidth} > ${box.clientWidth}: ${box.textContent.trim().slice(0, 60)}`);
    }
  return found;
}

/** In the page: serious and critical findings of axe. */
async function barriers() {
  const { violations } = await window.axe.run(document, { resultTypes: ["violations"] });
  return violations
    .filter((each) => ["serious", "critical"].includes(each.impact))
    .flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.target.join(" ")} ${node.failureSummary.split("\n")[1] || ""}`));
}

async function main() {
  const server = http.createServer(serve);
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const origin = `http://127.0.0.1:${server.address().port}`;
  const browser = await puppeteer.launch({
    executablePath: BROWSER, args: ["--no-sandbox", "--disable-gpu"], protocolTimeout: 600_000,
  });
  const chosen = addresses()
    .filter((each) => RegExp(values.only).test(each))
    .sort()
    .filter((_, index) => index % Number(values.every) === Number(values.offset));
  let findings = 0;
  for (const scheme of ["light", "dark"]) {
    // a context of its own: pages store the first scheme that they are shown in
    const page = await (await browser.createBrowserContext()).newPage();
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    // colors are measured at once, not in a transition
    await page.evaluateOnNewDocument(() => addEventListener("DOMContentLoaded", () =>
      document.head.append(Object.assign(document.createElement("style"), { textContent: "* { transition: none !important }" }))));
    let found = [];
    page.on("pageerror", (error) => found.push(`script: ${error.message}`));
    for (const address of chosen) {
      for (const width of [DESKTOP, PHONE]) {
        await page.setViewport({ width, height: 900 });
        await page.goto(`${origin}/${address}/`.replace(/\/\/$/, "/"), { waitUntil: "load" });
        await page.evaluate(() => new Promise((ready) => requestAnimationFrame(() => requestAnimationFrame(ready))));
        if (axe) await page.evaluate(axe);
        found.push(...(await page.evaluate(wideBoxes, width === DESKTOP)));
        if (axe) found.push(...(await page.evaluate(barriers)));
        for (const each of found) console.log(`/${address} ${width} ${scheme}: ${each}`);
        findings += found.length;
        found = [];
        if (values.screenshots) {
          const name = `${address.replaceAll("/", "_") || "index"}-${width}-${scheme}.png`;
          fs.mkdirSync(values.screenshots, { recursive: true });
          await page.screenshot({ path: path.join(values.screenshots, name), fullPage: true });
        }
      }
    }
  }
  console.log(`${findings} findings on ${chosen.length} pages`);
  await browser.close();
  server.close();
  process.exitCode = findings ? 1 : 0;
}

main();
