// Holds a view of a daemon's page open: `node hold.mjs URL TOOLS`. It prints `open` when the view is live; when standard input ends, it closes the
// view and prints how often it was fetched again, `refreshed N`.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [url, tools] = process.argv.slice(2);
const { chromium } = createRequire(`${tools}/`)("playwright-core");

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
try {
  const page = await browser.newPage();
  let refreshed = 0;
  page.on("response", (response) => response.request().resourceType() === "fetch" && response.ok() && refreshed++);
  await page.goto(url);
  const live = page.locator("#live[data-state=on]");
  await live.waitFor({ state: "attached" });
  console.log("open");
  await new Promise((ended) => process.stdin.on("end", ended).resume());
  assert.equal(await live.count(), 1, "the view is not live any more");
  console.log(`refreshed ${refreshed}`);
} finally {
  await browser.close();
}
