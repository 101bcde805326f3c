// The page follows the log: when it has grown, the live part is fetched anew and put in place of the old one. A form
// that somebody is filling in is left alone as long as what it asks is the same. Long lists hold a window of rows.
"use strict";

const ROW_PX = 32;
const KEPT_ROWS = 200;
const body = document.body;
const live = body.dataset.live;
const connection = document.getElementById("connection");

async function fetchText(address) {
  const response = await fetch(address, { headers: { Accept: "text/html" } });
  if (!response.ok) throw new Error(String(response.status));
  return { text: await response.text(), total: response.headers.get("X-Total") };
}

function parsed(text) {
  return new DOMParser().parseFromString(text, "text/html");
}

// The live part.

function keepForms(fresh, old) {
  for (const form of old.querySelectorAll("form[data-key]")) {
    const twin = fresh.querySelector(`form[data-key="${CSS.escape(form.dataset.key)}"]`);
    const busy = form.contains(document.activeElement) || [...form.querySelectorAll("input[type=text]")].some((i) => i.value);
    if (twin && busy) twin.replaceWith(form);
  }
}

function keepOpen(fresh, old) {
  const before = old.querySelectorAll("details");
  fresh.querySelectorAll("details").forEach((one, at) => { if (before[at]) one.open = before[at].open; });
}

let refreshing = false;
let again = false;

async function refresh() {
  if (refreshing) { again = true; return; }
  refreshing = true;
  try {
    const isSession = live !== "/live";
    const address = isSession ? live.replace(/\/live$/, "/part") : location.href;
    const found = parsed((await fetchText(address)).text).getElementById("live");
    const old = document.getElementById("live");
    if (found && old) {
      const active = document.activeElement && old.contains(document.activeElement) ? document.activeElement.id : "";
      keepForms(found, old);
      keepOpen(found, old);
      old.replaceWith(found);
      if (active && document.getElementById(active)) document.getElementById(active).focus();
    }
    const grown = found && old && found.dataset.seq !== old.dataset.seq;
    if (isSession && grown) await rows.refresh();
    await drawer.refresh();
    say("");
  } catch (error) {
    say("The page could not be brought up to date; it tries again.");
  } finally {
    refreshing = false;
    if (again) { again = false; refresh(); }
  }
}

function say(words) {
  if (connection && connection.textContent !== words) connection.textContent = words;
}

// The stream begins where the page was read, and where it was left: a window that nobody sees gives its connection
// back, because a browser has few for one address.
let source = null;
let mark = body.dataset.mark || "";

function follow() {
  if (source || document.hidden) return;
  source = new EventSource(`${live}?mark=${encodeURIComponent(mark)}`);
  const told = (event) => { mark = event.lastEventId || mark; refresh(); };
  source.addEventListener("change", told);
  source.addEventListener("tick", told);
  source.addEventListener("ready", () => say(""));
  source.onerror = () => say("acode does not answer; the page shows what was true before.");
}

document.addEventListener("visibilitychange", () => {
  if (!live) return;
  if (document.hidden && source) { source.close(); source = null; }
  follow();
});

// The list of steps: everything, or a window of it.

const rows = {
  box: document.getElementById("steps"),
  virtual: false,
  shown: [0, 0],

  start() {
    if (!this.box) return;
    this.total = Number(this.box.dataset.total);
    this.first = Number(this.box.dataset.start);
    this.virtual = this.box.classList.contains("virtual");
    if (!this.virtual) return;
    document.querySelectorAll(".more").forEach((one) => one.remove());
    this.above = document.createElement("div");
    this.below = document.createElement("div");
    this.box.prepend(this.above);
    this.box.append(this.below);
    this.shown = [this.first, this.first + this.box.querySelectorAll("[data-number]").length];
    this.space();
    this.box.addEventListener("scroll", () => this.onScroll());
    this.box.scrollTop = this.first * ROW_PX;
  },

  space() {
    this.above.setAttribute("class", "space");
    this.below.setAttribute("class", "space");
    // Heights are set on the object, which a policy without inline styles allows.
    this.above.style.height = `${this.shown[0] * ROW_PX}px`;
    this.below.style.height = `${Math.max(this.total - this.shown[1], 0) * ROW_PX}px`;
  },

  onScroll() {
    const from = Math.floor(this.box.scrollTop / ROW_PX);
    const to = from + Math.ceil(this.box.clientHeight / ROW_PX);
    if (from >= this.shown[0] && Math.min(to, this.total) <= this.shown[1]) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(Math.max(from - 60, 0)), 40);
  },

  async load(start) {
    const windows = [];
    for (let at = start; at < Math.min(start + KEPT_ROWS, this.total); at += 100) {
      windows.push(fetchText(`${this.box.dataset.rows}?from=${at}`));
    }
    const found = await Promise.all(windows);
    const fresh = found.flatMap((one) => [...parsed(one.text).querySelectorAll("[data-number]")]);
    if (!fresh.length) return;
    this.box.querySelectorAll("[data-number]").forEach((one) => one.remove());
    this.above.after(...fresh);
    this.shown = [start, start + fresh.length];
    if (found[0].total) this.total = Number(found[0].total);
    this.space();
  },

  async refresh() {
    if (!this.box) return;
    if (this.virtual) { await this.load(this.shown[0]); return; }
    const fresh = [];
    let total = this.total;
    for (let at = 0; at < total; at += 100) {
      const found = await fetchText(`${this.box.dataset.rows}?from=${at}`);
      total = Math.min(Number(found.total), KEPT_ROWS);
      fresh.push(...parsed(found.text).querySelectorAll("[data-number]"));
    }
    if (!fresh.length) return;
    const focused = document.activeElement && document.activeElement.closest("[data-number]");
    this.box.replaceChildren(...fresh);
    this.total = total;
    if (focused) {
      const twin = this.box.querySelector(`[data-number="${focused.dataset.number}"] a`);
      if (twin) twin.focus({ preventScroll: true });
    }
  },
};

// The drawer with one step.

const drawer = {
  address: null,
  opener: null,

  async open(link) {
    this.address = link.href + "&part=1";
    this.opener = link.closest("[data-number]") ? link.closest("[data-number]").dataset.number : null;
    let box = document.getElementById("drawer");
    if (!box) {
      box = document.createElement("dialog");
      box.id = "drawer";
      box.setAttribute("aria-label", "Step");
      const close = document.createElement("button");
      close.textContent = "Close";
      close.className = "close";
      close.addEventListener("click", () => box.close());
      const content = document.createElement("div");
      box.append(close, content);
      box.addEventListener("close", () => this.closed());
      body.append(box);
    }
    await this.fill();
    if (!box.open) box.showModal();
  },

  async fill() {
    const found = parsed((await fetchText(this.address)).text).getElementById("step");
    const box = document.getElementById("drawer");
    if (!found || !box) return;
    box.lastElementChild.replaceChildren(found);
    const output = box.querySelector("#output");
    if (output) output.scrollTop = output.scrollHeight;
    clearTimeout(this.timer);
    if (output && "follow" in output.dataset && box.open !== false) this.timer = setTimeout(() => this.refresh(), 500);
  },

  async refresh() {
    const box = document.getElementById("drawer");
    if (this.address && box && box.open) await this.fill();
  },

  closed() {
    this.address = null;
    clearTimeout(this.timer);
    const link = this.opener !== null ? document.querySelector(`[data-number="${this.opener}"] a`) : null;
    if (link) link.focus();
  },
};

// Clicks and keys.

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-drawer]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    drawer.open(link).catch(() => { location.href = link.href; });
    return;
  }
  const command = event.target.closest("code.command");
  if (command && navigator.clipboard) {
    navigator.clipboard.writeText(command.textContent).then(() => say("Copied."), () => {});
  }
});

document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && document.getElementById("q")) {
    event.preventDefault();
    document.getElementById("q").focus();
  }
  if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
});

function move(by) {
  const links = [...document.querySelectorAll("[data-number] a, .card a, .sessions a")];
  const at = links.indexOf(document.activeElement);
  const next = links[Math.min(Math.max(at + by, 0), links.length - 1)];
  if (next) next.focus();
}

rows.start();
if (live) follow();
