// Parts of a page that change by themselves: the broker says what is new, while somebody looks. Times
// that are told from now go on by the broker's clock.
"use strict";
const lengthUnits = [[31536e6, "y"], [864e5, "d"], [36e5, "h"], [6e4, "min"], [1e3, "s"]];
const lengthOf = (ms) => { // as words.py has it
  ms = Math.abs(Math.trunc(ms));
  if (ms < 1e3) return `${ms} ms`;
  if (ms < 1e4) return `${(ms / 1e3).toFixed(1).replace(/\.0$/, "")} s`;
  const place = lengthUnits.findIndex(([unit]) => ms >= unit), [unit, name] = lengthUnits[place], next = lengthUnits[place + 1];
  const more = next ? Math.floor((ms % unit) / next[0]) : 0;
  return `${Math.floor(ms / unit)} ${name}` + (more ? ` ${more} ${next[1]}` : "");
};
{
  const body = document.body, live = document.getElementById("live");
  let ahead = Number(body.dataset.now) - Date.now(), source = null, retry = 0, work = Promise.resolve();
  const tell = () => {
    const now = Date.now() + ahead;
    for (const time of document.querySelectorAll("time[datetime]")) {
      const far = new Date(time.dateTime).getTime() - now;
      const text = far > 0 ? `in ${lengthOf(far)}` : `${lengthOf(far)} ago`;
      if (!Number.isNaN(far) && time.textContent !== text) time.textContent = text;
    }
  };
  const made = (text) => {
    const box = document.createElement("template"); // rows of a table may stand alone in it
    box.innerHTML = text;
    return box.content.firstElementChild;
  };
  const put = (told) => {
    ahead = told.now - Date.now();
    for (const [name, text] of Object.entries(told.parts)) {
      const old = live.querySelector(`[data-part="${CSS.escape(name)}"]`), fresh = made(text.trim());
      if (!old) continue;
      const focused = old.contains(document.activeElement) ? [...old.querySelectorAll("a, button, [tabindex]")].indexOf(document.activeElement) : -1;
      old.replaceWith(fresh);
      withZones(fresh);
      if (focused >= 0) fresh.querySelectorAll("a, button, [tabindex]")[focused]?.focus();
    }
    tell();
  };
  const again = async () => {
    let got;
    try { got = await fetch(location.href, { headers: { "HX-Request": "true" } }); } catch { return; }
    if (!got.ok) { location.reload(); return; }
    const text = await got.text();
    if (live.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")) return; // not under their hands
    live.innerHTML = text;
    withZones(live);
    tell();
  };
  const close = () => { source?.close(); source = null; clearTimeout(retry); };
  const open = () => {
    close();
    const seen = document.getElementById("seen").dataset.seen, sign = live.dataset.live.includes("?") ? "&" : "?";
    source = new EventSource(`${live.dataset.live}${sign}seen=${encodeURIComponent(seen)}`);
    source.addEventListener("open", () => isGone(false));
    source.addEventListener("parts", (told) => { const news = JSON.parse(told.data); work = work.then(() => put(news)); });
    source.addEventListener("again", () => { work = work.then(again); });
    source.addEventListener("ended", () => location.reload());
    source.addEventListener("error", () => {
      isGone(true);
      if (source?.readyState === EventSource.CLOSED) retry = setTimeout(open, 5000);
    });
  };
  const look = () => { if (document.hidden) close(); else { tell(); if (live && !source) open(); } };
  document.addEventListener("visibilitychange", look);
  addEventListener("pagehide", close);
  addEventListener("pageshow", look);
  look();
  setInterval(() => { if (!document.hidden) tell(); }, 1000);
}
