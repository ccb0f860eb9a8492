// What the pages gain from a script: fresh ages, a word about the stream, dialogs, keys. All of it is optional.
(() => {
  "use strict";
  const body = document.body, main = document.getElementById("main"), stream = document.getElementById("stream");
  document.documentElement.classList.add("js");
  const skew = Date.now() - Date.parse(body.dataset.now);

  // --- ages ---------------------------------------------------------------------------------------------

  function words(seconds) {
    if (seconds < 60) return `${seconds} s`;
    for (const [size, unit, rest, name] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
      if (seconds < size) continue;
      const left = Math.floor((seconds % size) / rest);
      return `${Math.floor(seconds / size)} ${unit}` + (left ? ` ${left} ${name}` : "");
    }
    return "";
  }

  function tick() {
    const now = Date.now() - skew;
    for (const each of document.querySelectorAll("time[data-ago]")) {
      const age = words(Math.max(0, Math.floor((now - Date.parse(each.dateTime)) / 1000)));
      const text = each.dataset.ago === "for" ? age : `${age} ago`;
      if (each.textContent !== text) each.textContent = text;
    }
    freshness();
  }

  // --- UTC or local ----------------------------------------------------------------------------------------

  const zones = document.querySelector("[data-zones]");
  const two = (number) => String(number).padStart(2, "0");
  let zone = localStorage.getItem("outlast-zone") === "local" ? "local" : "utc";

  function clock(moment) {
    const day = zone === "utc" ? moment : new Date(moment.getTime() - moment.getTimezoneOffset() * 60000);
    const [date, time] = day.toISOString().split("T");
    return { date, time: time.slice(0, 8), short: time.slice(0, 5) };
  }

  function rezone() {
    for (const each of document.querySelectorAll("time[datetime]")) {
      const at = clock(new Date(each.dateTime));
      if (each.title) each.title = `${at.date} ${at.time} ${zone === "utc" ? "UTC" : "local time"}`;
      if (each.classList.contains("clock")) each.textContent = at.short;
      else if (!("ago" in each.dataset)) each.textContent = at.time;
    }
    for (const each of zones?.querySelectorAll("[data-zone]") ?? []) each.setAttribute("aria-pressed", String(each.dataset.zone === zone));
  }
  if (zones) {
    zones.hidden = false;
    zones.addEventListener("click", (event) => {
      const chosen = event.target.closest("[data-zone]");
      if (!chosen) return;
      zone = chosen.dataset.zone;
      localStorage.setItem("outlast-zone", zone);
      rezone();
    });
  }
  if (zone === "local") rezone();

  // --- live ---------------------------------------------------------------------------------------------

  const sign = document.getElementById("live"), STALE = 10000, POLL = 5000;
  let heard = Date.now(), polling = null, state = "static";

  function say(next, text) {
    if (!sign || state === next) return;
    state = next;
    sign.dataset.state = next;
    sign.querySelector(".word").textContent = text;
    body.classList.toggle("stale", next === "stale");
  }

  function hear(next = "live", text = "live") {
    heard = Date.now();
    say(next, text);
  }

  function freshness() {
    if (!stream || state === "static" || document.hidden) return;
    const age = Date.now() - heard;
    if (age > STALE) {
      say("stale", "stale");
      sign.querySelector(".word").textContent = `stale for ${words(Math.floor(age / 1000))}`;
    }
  }

  async function poll() {
    if (document.hidden) return;
    try {
      const answer = await fetch(main.dataset.poll, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(String(answer.status));
      await htmx.swap({ text: await answer.text(), sourceElement: stream, target: stream, swap: "none" });
      hear("polling", "polling");
    } catch { say("reconnecting", "reconnecting"); }
  }

  function fallBack() {
    if (polling === null) { polling = setInterval(poll, POLL); poll(); }
  }

  if (stream) {
    const on = (name, act) => stream.addEventListener(name, act);
    on("htmx:sse:after:connection", () => hear());
    on("htmx:sse:after:message", () => hear());
    on("beat", () => hear());
    on("trouble", () => { heard = Date.now(); say("reconnecting", "Redis does not answer"); });
    on("signedout", () => location.reload());
    on("gone", () => { stream.remove(); say("static", "no longer live"); });
    on("htmx:sse:error", () => say("reconnecting", "reconnecting"));
    on("htmx:response:error", fallBack);
    on("htmx:error", () => { if (state === "static") fallBack(); });
    document.addEventListener("visibilitychange", () => { heard = Date.now(); });
  }
  setInterval(tick, 1000);

  // --- dialogs ------------------------------------------------------------------------------------------

  const dialog = document.getElementById("dialog"), help = document.getElementById("help");

  async function ask(address) {
    let answer;
    try {
      answer = await fetch(address, { headers: { "Outlast-Fragment": "1" }, credentials: "same-origin" });
    } catch { location.href = address; return; }
    if (answer.redirected) { location.href = answer.url; return; }
    dialog.innerHTML = await answer.text();
    const title = dialog.querySelector("h1");
    if (title) { title.id = "dialog-title"; dialog.setAttribute("aria-labelledby", "dialog-title"); dialog.removeAttribute("aria-label"); }
    dialog.showModal();
    (dialog.querySelector("input:not([type=hidden])") || dialog.querySelector("button, a")).focus();
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-dialog]");
    if (link && !(event.ctrlKey || event.metaKey || event.shiftKey || event.button)) { event.preventDefault(); ask(link.href); return; }
    const close = event.target.closest("[data-close]");
    if (close && dialog.open && dialog.contains(close)) { event.preventDefault(); dialog.close(); return; }
    if (event.target === dialog || event.target === help) { event.target.close(); return; }
    if (event.target.closest("[data-help]")) { help.showModal(); return; }
    const copy = event.target.closest("[data-copy]");
    if (copy) navigator.clipboard.writeText(copy.dataset.copy).then(() => { copy.textContent = "copied"; });
    const whole = event.target.closest("[data-copy-of]");
    if (whole) navigator.clipboard.writeText(document.getElementById(whole.dataset.copyOf).textContent).then(() => { whole.textContent = "copied"; });
    const menu = document.querySelector("details.menu[open]");
    if (menu && !menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("keydown", (event) => {
    // A link that acts like a button answers to the space bar as one.
    if (event.key === " " && event.target.matches?.("a[role=button]")) { event.preventDefault(); event.target.click(); }
  });
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("[data-dialog-form]")) return;
    event.preventDefault();
    ask(`${event.target.action}?${new URLSearchParams(new FormData(event.target))}`);
  });

  // --- ticks --------------------------------------------------------------------------------------------

  const all = document.querySelector("[data-all]"), told = document.querySelector("[data-ticked]");
  const boxes = () => [...document.querySelectorAll("#selection tbody input[name=key]:not(:disabled)")];

  function count() {
    if (!told) return;
    const number = boxes().filter((box) => box.checked).length;
    told.textContent = number ? ` (${number})` : "";
    if (all) { all.checked = number > 0 && number === boxes().length; all.indeterminate = number > 0 && !all.checked; }
  }
  if (all) { all.hidden = false; all.addEventListener("change", () => { for (const box of boxes()) box.checked = all.checked; count(); }); }
  document.addEventListener("change", (event) => { if (event.target.name === "key") count(); });
  document.addEventListener("htmx:after:swap", () => { count(); tick(); if (zone === "local") rezone(); });
  for (const each of document.querySelectorAll("[data-help]")) each.hidden = false;
  count();

  const filters = document.querySelector("details.filters");
  if (filters && innerWidth <= 720) filters.open = false;

  // --- keys ---------------------------------------------------------------------------------------------

  const PAGES = { o: "Overview", r: "Runs", q: "Queue", w: "Workers", b: "Bulk", a: "Audit", m: "Metrics", s: "System" };
  const switched = document.getElementById("keys-on");
  let going = 0;
  switched.checked = localStorage.getItem("outlast-keys") !== "off";
  switched.addEventListener("change", () => localStorage.setItem("outlast-keys", switched.checked ? "on" : "off"));

  const row = () => document.activeElement?.closest?.("tr[data-row]");

  function move(by) {
    const rows = [...document.querySelectorAll("tr[data-row]")], at = rows.indexOf(row());
    const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))];
    next?.querySelector("a.run, th a, a")?.focus();
  }

  const ACTS = {
    "?": () => help.showModal(),
    "/": () => { const box = document.getElementById("search"); if (box) { if (filters) filters.open = true; box.focus(); } else go("Runs"); },
    j: () => move(1),
    k: () => move(-1),
    x: () => { const box = row()?.querySelector("input[type=checkbox]"); if (box) { box.click(); } },
    c: () => {
      const link = row()?.querySelector("[data-key=c]") || document.querySelector(".run-head [data-key=c]");
      link?.focus();
      link?.click();
    },
    r: () => location.reload(),
    g: () => { going = Date.now(); },
  };

  function go(name) {
    for (const link of document.querySelectorAll(".bar nav a")) if (link.textContent === name) location.href = link.href;
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || dialog.open || help.open) return;
    if (event.target.closest("input:not([type=checkbox]), select, textarea")) return;
    if (!switched.checked && event.key !== "?") return;
    if (Date.now() - going < 1500 && PAGES[event.key]) { going = 0; event.preventDefault(); go(PAGES[event.key]); return; }
    const act = ACTS[event.key];
    if (act) { event.preventDefault(); act(); }
  });
})();
