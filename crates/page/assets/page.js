// Keeps a view up to date: when the daemon says that something has changed, the view is fetched again, and its parts marked `data-live` that
// differ are replaced. Each view works without this. Text of Pods is never made into markup here: the daemon has escaped it.

const GAP_MS = 1000;
const state = document.getElementById("live");
let source;
let busy = false;
let again = false;
let last = 0;

function say(name, words) {
  if (state.dataset.state !== name) {
    state.dataset.state = name;
    state.textContent = words;
  }
}

function start() {
  source ??= new EventSource("/api/v1/changes");
  source.onopen = () => say("on", "live");
  source.onmessage = refresh;
  source.onerror = () => say("lost", source.readyState === EventSource.CLOSED ? "too many pages" : "no daemon");
}

function stop() {
  source?.close();
  source = undefined;
  say("off", "paused");
}

// A browser allows a few connections to one address: a page that is not seen must not hold one.
document.addEventListener("visibilitychange", () => (document.hidden ? stop() : (start(), refresh())));
addEventListener("pagehide", stop);
addEventListener("pageshow", (event) => event.persisted && start());

async function refresh() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    await new Promise((done) => setTimeout(done, Math.max(0, last + GAP_MS - Date.now())));
    last = Date.now();
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.ok) {
      replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }
  } catch {
    // The event source says that the daemon does not answer, and connects again.
  } finally {
    busy = false;
    if (again) {
      again = false;
      refresh();
    }
  }
}

function replace(fresh) {
  // What is being read or copied stays as it is.
  if (!getSelection().isCollapsed) {
    return;
  }
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(part.id);
    if (!other) {
      continue;
    }
    for (const open of part.querySelectorAll("details[open]")) {
      const same = open.id ? other.querySelector("#" + CSS.escape(open.id)) : other.querySelectorAll("details")[[...part.querySelectorAll("details")].indexOf(open)];
      same?.setAttribute("open", "");
    }
    if (other.innerHTML === part.innerHTML) {
      continue;
    }
    const focused = part.contains(document.activeElement) ? place(part, document.activeElement) : undefined;
    const scrolled = [...part.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    part.replaceChildren(...document.importNode(other, true).childNodes);
    part.querySelectorAll(".scroll").forEach((box, at) => (box.scrollLeft = scrolled[at] ?? 0));
    focused?.()?.focus({ preventScroll: true });
  }
}

// Finds the element again: by what it leads to, else by its position.
function place(part, element) {
  const name = element.localName;
  const href = element.getAttribute("href");
  const at = [...part.querySelectorAll(name)].indexOf(element);
  return () => {
    const all = [...part.querySelectorAll(name)];
    return (href && all.find((other) => other.getAttribute("href") === href)) ?? all[at];
  };
}

document.addEventListener("click", (event) => {
  const path = event.target.dataset?.href;
  if (path?.startsWith("/pod/")) {
    location.assign(path);
  }
});

// A slash leads to the search, as on other pages.
document.addEventListener("keydown", (event) => {
  const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
  if (event.key === "/" && plain && !event.target.closest("input")) {
    event.preventDefault();
    document.getElementById("find").focus();
  }
});

if (!document.hidden) {
  start();
}
