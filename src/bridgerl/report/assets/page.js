"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const view = { x: "steps", y: "linear", measure: null, verdict: "", hidden: new Set() };
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const color = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  // Plotly reads markup in texts; names must stay what they are.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const number = (value) => value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 3 : 1 });

  function layout(axes) {
    const axis = { gridcolor: color("line"), linecolor: color("line"), zerolinecolor: color("line"), automargin: true };
    return {
      margin: { l: 12, r: 12, t: 8, b: 12 }, showlegend: false, hovermode: "x unified", hoverdistance: 60, dragmode: "zoom",
      modebar: { bgcolor: "rgba(0,0,0,0)", color: color("muted"), activecolor: color("accent") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: color("muted") },
      hoverlabel: { bgcolor: color("card"), bordercolor: color("line"), font: { color: color("text") }, namelength: -1 },
      xaxis: { ...axis, ...axes.x }, yaxis: { ...axis, ...axes.y },
    };
  }
  const config = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]] };

  function points(curve, scale, floor) {
    const x = view.x === "hours" ? curve.hours : curve.steps;
    const kept = curve.mean.map((_, i) => i).filter((i) => scale === "linear" || curve.mean[i] > 0);
    const pick = (values) => kept.map((i) => values[i]);
    // On a log axis a band that reaches 0 or below goes down to the lowest point shown.
    const low = pick(curve.low);
    const edge = low.map((v) => (scale === "log" && v <= 0 ? floor : v));
    return { x: pick(x), mean: pick(curve.mean), low, edge, high: pick(curve.high), n: pick(curve.n) };
  }

  function traces(curve, scale, floor) {
    const { x, mean, low, edge, high, n } = points(curve, scale, floor);
    const paint = color(`c${curve.color % 8}`);
    const whole = n.map((count) => count === curve.seeds);
    // The dotted part starts where the solid one ends, so that no gap opens between them.
    const solid = mean.map((v, i) => (whole[i] ? v : null));
    const partial = mean.map((v, i) => (whole[i] && whole[i - 1] !== false && whole[i + 1] !== false ? null : v));
    const line = { color: paint, width: 2.25, dash: curve.color >= 8 ? "dash" : "solid" };
    const text = mean.map((v, i) => n[i] === null ? number(v) : n[i] > 1 ? `${number(v)} (${number(low[i])} to ${number(high[i])}, ${n[i]} seeds)` : `${number(v)} (1 seed)`);
    const name = plain(curve.setting);
    const bound = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
    return [
      { ...bound, y: edge },
      { ...bound, y: high, fill: "tonexty", fillcolor: `${paint}26` },
      { x, y: partial, mode: "lines", line: { ...line, dash: "dot" }, hoverinfo: "skip" },
      { x, y: solid, mode: "lines", line, hoverinfo: "skip" },
      { x, y: mean, name, text, mode: "markers", marker: { color: paint, size: x.length > 1 ? 4 : 8 }, hovertemplate: "%{text}" },
    ];
  }

  function drawCurves() {
    for (const plot of all(".plot[data-task]")) {
      const curves = data.curves[plot.dataset.task].curves.filter(
        (c) => !view.hidden.has(c.color) && (view.x === "steps" || c.hours));
      const positive = curves.flatMap((c) => [...c.mean, ...c.low]).filter((v) => v > 0);
      // A logarithm would take a curve of nothing but negative returns away without a word.
      const scale = curves.every((c) => c.mean.some((v) => v > 0)) ? view.y : "linear";
      plot.nextElementSibling.hidden = scale === view.y;
      const title = view.x === "steps" ? data.figure.x : "hours of training";
      const axes = {
        x: { title: { text: title, standoff: 8 }, rangemode: "tozero", type: data.figure.log ? scale : "linear" },
        y: { title: { text: data.figure.y, standoff: 8 }, type: scale },
      };
      Plotly.react(plot, curves.flatMap((c) => traces(c, scale, Math.min(...positive))), layout(axes), config);
    }
  }

  function drawOverall() {
    const plot = document.getElementById("iqm");
    if (!plot) return;
    const rows = data.overall.filter((r) => r.measure === view.measure).reverse();
    const names = rows.map((r) => plain(r.setting));
    const paints = rows.map((r) => color(`c${data.settings.indexOf(r.setting) % 8}`));
    const ends = rows.map((r, i) => ({
      x: [r.low, r.high], y: [names[i], names[i]], mode: "lines", hoverinfo: "skip", line: { color: paints[i], width: 9 }, opacity: 0.35,
    }));
    const middles = {
      x: rows.map((r) => r.iqm), y: names, mode: "markers", marker: { color: paints, size: 11 },
      text: rows.map((r) => `${number(r.iqm)}${r.low === null ? ", one seed: no interval" : ` (${number(r.low)} to ${number(r.high)})`}`),
      hovertemplate: "%{text}<extra></extra>",
    };
    for (const row of all("#overall tbody tr")) row.hidden = row.dataset.measure !== view.measure;
    plot.style.height = `${5.5 + 2.2 * rows.length}rem`;
    const reach = rows.flatMap((r) => [r.iqm, r.low ?? r.iqm, r.high ?? r.iqm]);
    const [least, most] = [Math.min(...reach), Math.max(...reach)];
    const pad = 0.06 * (most - least) || 0.1;
    const axes = {
      x: { range: [least - pad, most + pad], title: { text: "IQM, 1 = the paper's SAC+CDQ", standoff: 8 } },
      y: { type: "category", showgrid: false, tickfont: { color: color("text") }, range: [-0.6, rows.length - 0.4] },
    };
    Plotly.react(plot, [...ends, middles], { ...layout(axes), hovermode: "closest" }, config);
  }

  function filterComparisons() {
    const against = document.getElementById("against")?.value;
    for (const row of all("#comparison tbody tr")) {
      row.hidden = row.dataset.compared !== view.compared || row.dataset.against !== against;
    }
  }

  function draw() {
    drawCurves();
    filterComparisons();
    drawOverall();
  }

  function setTheme(theme) {
    root.dataset.theme = theme;
    const button = document.getElementById("theme");
    button.textContent = theme === "dark" ? "Light" : "Dark";
    draw();
  }

  function filterClaims() {
    const words = document.getElementById("filter").value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const row of all("#claims tbody tr")) {
      const text = row.textContent.toLowerCase();
      row.hidden = (view.verdict && row.dataset.verdict !== view.verdict) || !words.every((w) => text.includes(w));
      shown += !row.hidden;
    }
    document.getElementById("none").hidden = shown > 0;
  }

  function press(group, chosen) {
    for (const button of all("button", group)) button.setAttribute("aria-pressed", String(button === chosen));
  }

  async function copy(button) {
    const code = button.previousElementSibling;
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      // Some browsers refuse it to pages from disk; the older way, or the selection, remains.
      button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  for (const section of all("main section")) {
    const link = document.createElement("a");
    link.href = `#${section.id}`;
    link.textContent = section.querySelector("h2").textContent;
    document.querySelector("nav").append(link);
  }
  for (const group of all("[data-choice]")) {
    const name = group.dataset.choice;
    view[name] = group.querySelector("[aria-pressed=true]").value;
    group.addEventListener("click", ({ target }) => {
      const button = target.closest("button");
      if (!button) return;
      press(group, button);
      view[name] = button.value;
      if (name === "verdict") filterClaims();
      else draw();
    });
  }
  for (const button of all("#legend button")) {
    button.addEventListener("click", () => {
      const index = Number(button.dataset.setting);
      const show = view.hidden.delete(index);
      if (!show) view.hidden.add(index);
      button.setAttribute("aria-pressed", String(show));
      drawCurves();
    });
  }
  for (const button of all(".copy")) button.addEventListener("click", () => copy(button));
  document.getElementById("filter")?.addEventListener("input", filterClaims);
  document.getElementById("against")?.addEventListener("change", filterComparisons);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const system = () => (dark.matches ? "dark" : "light");
  document.getElementById("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", () => setTheme(system()));
  let before = null;
  addEventListener("beforeprint", () => { before = root.dataset.theme; setTheme("light"); });
  addEventListener("afterprint", () => setTheme(before));
  setTheme(system());
})();
