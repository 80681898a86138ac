// Looks at the page of a daemon with a real browser: `node look.mjs URL TOOLS PICTURES`. A line `create NAME CPU` on standard output asks for a
// Pod; an empty line on standard input says that it was tried. Any other line is for people. It fails with the first thing that is not right.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [url, tools, pictures] = process.argv.slice(2);
const require = createRequire(`${tools}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const VIEWS = [
  ["pending", "/", "Pending"],
  ["attempts", "/attempts", "Attempts"],
  ["pod", "/pod/default/fits-0", "default/fits-0"],
  ["plugins", "/plugins", "Plugins"],
  ["health", "/health", "Health"],
];
const SIZES = { desktop: { width: 1120, height: 760 }, phone: { width: 390, height: 780 } };
const TIMEOUT = 15_000;

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
async function create(name, cpu) {
  console.log(`create ${name} ${cpu}`);
  assert.equal((await answers.next()).done, false, "the test has gone");
}

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

/// A tab in which nothing may be asked of others, nor fail.
async function tab(options) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(TIMEOUT);
  const page = await context.newPage();
  const wrong = [];
  page.on("request", (request) => new URL(request.url()).origin === new URL(url).origin || wrong.push(`asks for ${request.url()}`));
  page.on("console", (message) => message.type() === "error" && wrong.push(message.text()));
  page.on("pageerror", (error) => wrong.push(String(error)));
  return { page, wrong, close: () => context.close() };
}

try {
  // Five views, light and dark, wide and narrow.
  let found = 0;
  for (const colorScheme of ["light", "dark"]) {
    for (const [size, viewport] of Object.entries(SIZES)) {
      const { page, wrong, close } = await tab({ colorScheme, viewport });
      for (const [name, path, heading] of VIEWS) {
        const where = `${name}, ${colorScheme}, ${size}`;
        await page.goto(url + path);
        assert.equal(await page.locator("h1").innerText(), heading, where);
        await page.locator("#live[data-state=on]").waitFor({ state: "attached" });
        const dark = await page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor.match(/\d+/g)[0] < 128);
        assert.equal(dark, colorScheme === "dark", where);
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(over <= 0, `${where}: it is ${over} px too wide`);
        await page.evaluate(axe);
        const { violations, passes } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations", "passes"] }));
        assert.ok(passes.length > 10, where);
        found += passes.length;
        const findings = violations.map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
        assert.deepEqual(findings.filter((finding) => /^(serious|critical|moderate)/.test(finding)), [], where);
        await page.screenshot({ path: `${pictures}/page-${name}-${colorScheme}-${size}.png` });
      }
      assert.deepEqual(wrong, [], `${colorScheme}, ${size}`);
      await close();
    }
  }
  console.log(`20 pictures in ${pictures}; axe has ${found} rules satisfied, none broken`);

  // What the views say.
  const { page, wrong, close } = await tab({ viewport: SIZES.desktop });
  const text = (selector) => page.locator(selector).innerText();
  await page.goto(url);
  const reasons = await page.locator(".card h2").allInnerTexts();
  assert.ok(reasons.includes("Insufficient cpu"), reasons.join());
  assert.ok(reasons.some((reason) => reason.includes("node affinity")), reasons.join());
  assert.match(await text("#pending"), /What would help: room on a Node/);
  await page.goto(`${url}/attempts?keep=failed`);
  const results = await page.locator("tbody .mark").allInnerTexts();
  assert.ok(results.length > 0 && results.every((result) => result === "Unschedulable"), results.join());
  assert.ok((await page.locator(".plot circle").count()) >= results.length);
  await page.locator(".plot circle").first().click({ force: true });
  await page.waitForURL("**/pod/default/**");
  await page.goto(`${url}/pod/default/fits-0`);
  assert.match(await text(".answer"), /^default\/fits-0 is on node-\d+: of \d+ Nodes that fit/);
  const phases = await page.locator(".waterfall tr.phase th").allInnerTexts();
  for (const phase of ["preFilter", "filter", "score", "bind"]) {
    assert.ok(phases.includes(phase), `${phase} is not in ${phases}`);
  }
  const bars = await page.locator(".waterfall tr.phase rect").evaluateAll((all) => all.map((bar) => bar.getBoundingClientRect().x));
  assert.ok(bars.at(-1) > bars[0] && bars.length === phases.length, bars.join());
  assert.ok((await page.locator(".scores tbody tr").count()) > 1 && (await page.locator(".scores tr.chosen").count()) === 1);
  await page.goto(`${url}/pod/default/big-0`);
  assert.match(await text(".answer"), /is still Pending because no Node fits .* what would help: room on a Node/);
  await page.goto(`${url}/health`);
  assert.match(await text("#health"), /has lost nothing/);
  assert.match(await text("tbody"), /kube-scheduler\s+\d+\s+v1\.\d+/);

  // By keyboard.
  await page.goto(url);
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await page.keyboard.press("/");
  await page.keyboard.type("default/fits-1");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/pod/default/fits-1");

  // Live: a Pod appears, without a load of the page; what is open stays open, what has the focus keeps it.
  await page.goto(url);
  await page.locator("#live[data-state=on]").waitFor({ state: "attached" });
  await page.evaluate(() => (window.before = true));
  await page.locator(".card a").first().focus();
  const focused = await page.evaluate(() => document.activeElement.getAttribute("href"));
  await create("late", "900");
  await page.locator("a[href='/pod/default/late']").first().waitFor({ state: "attached" });
  assert.equal(await page.evaluate(() => window.before), true, "the page was loaded again");
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("href")), focused);
  await page.goto(`${url}/pod/default/soon`);
  assert.match(await text("#report"), /No attempt of default\/soon/);
  await create("soon", "10m");
  await page.locator(".answer.ok").waitFor();
  assert.deepEqual(wrong, []);
  await close();
  console.log("a Pod appears while the page is open");

  // Without JavaScript.
  const plain = await tab({ javaScriptEnabled: false });
  for (const [name, path, heading] of VIEWS) {
    await plain.page.goto(url + path);
    assert.equal(await plain.page.locator("h1").innerText(), heading, `${name} without JavaScript`);
  }
  await plain.page.goto(`${url}/pod/default/fits-0`);
  assert.match(await plain.page.locator(".answer").innerText(), /is on node-/);
  assert.ok((await plain.page.locator(".waterfall rect").count()) > 4);
  assert.deepEqual(plain.wrong, []);
} finally {
  await browser.close();
  // The test keeps its end open: Node.js would wait for it.
  process.stdin.destroy();
}
