// The chart of the future: one colour a topic, stacked; the wheel zooms, a drag selects.
"use strict";
{
  const box = document.getElementById("chart"), about = document.getElementById("about-chart");
  const colours = ["#0172ad", "#c2410c", "#15803d", "#9333ea", "#b45309", "#be185d", "#0f766e", "#4d7c0f"];
  let stretch = box ? [Number(box.dataset.from), Number(box.dataset.to)] : null, chart = null, shown = null, waiting = 0;
  const first = stretch && [...stretch];
  const chosen = () => [...document.querySelectorAll("#choose option:checked")].map((one) => one.value);
  const address = () => {
    const query = new URLSearchParams({ from: Math.round(stretch[0]), to: Math.round(stretch[1]) });
    for (const topic of chosen()) query.append("topic", topic);
    return query;
  };
  // What is selected is in the address, too, so that it can be copied.
  const form = document.getElementById("select");
  let isSelected = Boolean(form?.dataset.selected);
  const keepAddress = () => {
    const query = address();
    if (isSelected) for (const [name, value] of new FormData(form)) if (value) query.append(name === "topic" ? "in" : name, value);
    history.replaceState(null, "", `/console/future?${query}`);
  };
  form?.addEventListener("htmx:afterRequest", (told) => { if (told.detail.successful) { isSelected = true; keepAddress(); } });
  const fast = (rate) => rate.toLocaleString("en", { maximumSignificantDigits: 3 });
  const lasting = (ms) => ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : ms < 3_600_000 ? `${(ms / 60_000).toFixed(1)} min` : `${(ms / 3_600_000).toFixed(1)} h`;
  const load = async () => {
    const asked = ++waiting;
    let answer;
    try {
      const got = await fetch(`/console/future/counts?${address()}`);
      if (!got.ok) throw new Error(`${got.status}`);
      answer = await got.json();
    } catch { if (asked === waiting) about.textContent = "The broker does not answer."; return; }
    if (asked === waiting) draw(answer);
  };
  const draw = (answer) => {
    shown = answer;
    const count = answer.series[0]?.counts.length ?? 1;
    const xs = Array.from({ length: count }, (_, place) => (answer.from + place * answer.bucket_ms) / 1000);
    const sums = new Array(count).fill(0), stacked = [];
    for (const one of answer.series) stacked.push(one.counts.map((value, place) => (sums[place] += value)));
    const style = getComputedStyle(document.documentElement), ink = style.getPropertyValue("--pico-color"), line = style.getPropertyValue("--pico-muted-border-color");
    const capacity = answer.series.reduce((sum, one) => sum + one.per_second, 0) * answer.bucket_ms / 1000;
    const axis = { stroke: ink, grid: { stroke: line }, ticks: { stroke: line } };
    const options = {
      width: box.clientWidth, height: 320, legend: { show: false }, cursor: { drag: { x: true, y: false, setScale: false } },
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"), scales: { y: { range: (_, low, high) => [0, Math.max(high, 1) * 1.05] } }, axes: [{ ...axis, label: "due, UTC", labelSize: 24 }, { ...axis, size: 60 }],
      series: [{}, ...answer.series.map((one, place) => ({ label: one.topic, stroke: colours[place], fill: colours[place], width: 1, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } })).reverse()],
      hooks: {
        setSelect: [(drawn) => { if (drawn.select.width > 2) select(drawn.posToVal(drawn.select.left, "x") * 1000, drawn.posToVal(drawn.select.left + drawn.select.width, "x") * 1000); }],
        draw: [(drawn) => {
          const pen = drawn.ctx, edge = drawn.bbox;
          const rule = (from, to, colour) => { pen.save(); pen.strokeStyle = colour; pen.setLineDash([6, 4]); pen.lineWidth = 2; pen.beginPath(); pen.moveTo(...from); pen.lineTo(...to); pen.stroke(); pen.restore(); };
          const now = drawn.valToPos(answer.now / 1000, "x", true);
          if (now >= edge.left && now <= edge.left + edge.width) rule([now, edge.top], [now, edge.top + edge.height], "#dc2626");
          const most = drawn.valToPos(capacity, "y", true);
          if (capacity && most >= edge.top) rule([edge.left, most], [edge.left + edge.width, most], ink);
        }],
      },
    };
    chart?.destroy();
    chart = new uPlot(options, [xs, ...stacked.reverse()], box);
    chart.over.addEventListener("wheel", zoom, { passive: false });
    chart.over.addEventListener("dblclick", () => { stretch = [...first]; load(); });
    const total = sums.reduce((sum, value) => sum + value, 0), known = answer.series.filter((one) => one.per_second);
    about.textContent = `${total.toLocaleString("en")} messages from ${new Date(stretch[0]).toISOString()} to ${new Date(stretch[1]).toISOString()}` +
      (total && known.length < answer.series.length ? "; how fast consumers are is not known of topics of which nothing was done in the last hour." : ".");
    const late = document.getElementById("late");
    late.replaceChildren(...known.map((one) => {
      const row = document.createElement("li");
      row.textContent = one.late_count
        ? `${one.topic}: ${one.late_count.toLocaleString("en")} messages will be late, by up to ${lasting(one.late_ms)}, from ${new Date(one.late_from_ms).toISOString()} on, at ${fast(one.per_second)} a second, the most that consumers did in the last hour.`
        : `${one.topic}: nothing will be late at ${fast(one.per_second)} a second, the most that consumers did in the last hour.`;
      if (one.late_count) row.className = "wrong";
      return row;
    }));
    box.dataset.total = total;
    const legend = document.getElementById("legend");
    legend.replaceChildren(...answer.series.map((one, place) => {
      const row = document.createElement("li"), mark = document.createElementNS("http://www.w3.org/2000/svg", "svg"), dot = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      dot.setAttribute("width", "100%"); dot.setAttribute("height", "100%"); dot.setAttribute("fill", colours[place]);
      mark.append(dot); mark.setAttribute("aria-hidden", "true");
      row.append(mark, ` ${one.topic}: ${one.counts.reduce((sum, value) => sum + value, 0).toLocaleString("en")}`);
      return row;
    }));
    keepAddress();
  };
  let timer = 0;
  const zoom = (turned) => {
    turned.preventDefault();
    const at = chart.posToVal(turned.offsetX, "x") * 1000, factor = turned.deltaY > 0 ? 1.5 : 1 / 1.5;
    const wide = Math.min(Math.max((stretch[1] - stretch[0]) * factor, 10_000), 732 * 86_400_000);
    const part = (at - stretch[0]) / (stretch[1] - stretch[0]);
    stretch = [Math.max(0, at - part * wide), at - part * wide + wide];
    clearTimeout(timer);
    timer = setTimeout(load, 60);
  };
  const select = (from, to) => {
    form.elements.due_from.value = new Date(from).toISOString();
    form.elements.due_to.value = new Date(to).toISOString();
    if (shown.series.length === 1) form.elements.topic.value = shown.series[0].topic;
    htmx.trigger(form, "submit");
  };
  if (box) {
    load();
    addEventListener("resize", () => chart?.setSize({ width: box.clientWidth, height: 320 }));
    document.addEventListener("theme", () => shown && draw(shown));
  }
}
