// What all pages do: a change brings its token, times are shown in the viewer's zone, too, keys lead
// to pages, and a broker that does not answer is told of.
"use strict";
const token = document.querySelector('meta[name="csrf"]').content;
document.body.addEventListener("htmx:configRequest", (told) => { told.detail.headers["X-CSRF-Token"] = token; });

const lost = document.getElementById("lost");
const isGone = (gone) => { lost.hidden = !gone; };
document.body.addEventListener("htmx:sendError", () => isGone(true));
document.body.addEventListener("htmx:responseError", (told) => {
  const status = told.detail.xhr.status, target = told.detail.target;
  if (status === 401) location.reload();
  else if (target && target.id === "selection") {
    const answer = new DOMParser().parseFromString(told.detail.xhr.responseText, "text/html");
    target.textContent = answer.querySelector('[role="alert"]')?.textContent ?? `The broker answered ${status}.`;
  }
});

const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const withZones = (root) => {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (!Number.isNaN(at.getTime()) && !time.title.includes(" · ")) time.title += ` · ${local.format(at)}`;
  }
};
withZones(document);
document.body.addEventListener("htmx:afterSwap", (told) => withZones(told.detail.target));

// A finger cannot point at a time: a tap tells it, until the next one.
const instant = document.getElementById("instant");
document.addEventListener("click", (clicked) => {
  const time = clicked.target.closest("time[datetime]");
  instant.hidden = !time;
  if (time) instant.textContent = time.title;
});

const root = document.documentElement;
const turn = () => {
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("dejaq-theme", root.dataset.theme);
  document.dispatchEvent(new Event("theme"));
};
document.getElementById("theme").addEventListener("click", turn);
// What a role may not see has no link in the bar, and so no key.
const place = (key) => document.querySelector(`header a[accesskey="${CSS.escape(key)}"]`)?.href;
let isGoing = false;
document.addEventListener("keydown", (pressed) => {
  if (pressed.ctrlKey || pressed.metaKey || pressed.altKey || pressed.target.closest("input, select, textarea")) return;
  if (isGoing && place(pressed.key)) location.assign(place(pressed.key));
  isGoing = pressed.key === "g";
  if (pressed.key === "t") turn();
  if (pressed.key === "?") document.getElementById("keys").showModal();
  if (pressed.key === "/") { const filter = document.getElementById("filter"); if (filter) { filter.focus(); pressed.preventDefault(); } }
});
const due = document.getElementById("due");
due?.addEventListener("input", () => {
  const at = new Date(due.value), hasZone = /(Z|[+-]\d\d:?\d\d)$/i.test(due.value.trim());
  document.getElementById("due-shown").textContent = Number.isNaN(at.getTime()) || !hasZone
    ? "Like 2030-01-31T09:30:00+01:00, with its zone." : `${at.toISOString()} · ${local.format(at)}`;
});
document.body.addEventListener("change", (told) => {
  if (!told.target.matches("input.instant")) return;
  const at = new Date(told.target.value).getTime();
  told.target.setCustomValidity(Number.isNaN(at) ? "Like 2030-01-31T09:30:00Z" : "");
  told.target.form.elements[told.target.dataset.for].value = Number.isNaN(at) ? "" : String(at);
});

// A file is read here and goes with the form as text: what is looked at is what is sent.
document.querySelector("input.read-rows")?.addEventListener("change", async (told) => {
  const input = told.target, file = input.files[0], said = document.getElementById("rows-read");
  if (!file) return;
  if (file.size > Number(input.dataset.max)) { said.textContent = `${file.name} is longer than ${input.dataset.max} bytes.`; return; }
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    input.form.elements[input.dataset.for].value = text;
    said.textContent = `${file.name} is in the field below: look at it.`;
  } catch { said.textContent = `${file.name} is no text in UTF-8.`; }
});
