"use strict";
// The board: lists runs every few seconds, and draws the curves of those that are selected.
(() => {
  const EVERY = 3000;
  const get = (id) => document.getElementById(id);
  const controls = get("curve-controls"), filter = get("run-filter");
  const charts = new netspec.Charts(get("curves"));
  const selected = new Set();
  let known = [], drawn = "", first = true;

  function element(tag, text, attributes = {}) {
    const node = document.createElement(tag);
    if (text !== undefined && text !== null) node.textContent = text;
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  }

  function fill(table, header, rows) {
    const line = (cells, tag) => {
      const row = element("tr");
      row.append(...cells.map((cell) => cell instanceof Element ? cell : element(tag, cell)));
      return row;
    };
    table.tHead.replaceChildren(line(header, "th"));
    table.tBodies[0].replaceChildren(...rows.map((row) => line(row, "td")));
  }

  function duration(seconds) {
    if (seconds === null) return "";
    if (seconds < 60) return `${seconds.toFixed(1)} s`;
    const minutes = Math.round(seconds / 60);
    return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  }

  function value(number) { return typeof number === "number" ? netspec.number(number) : String(number ?? ""); }

  function choice(run) {
    const cell = element("td"), box = element("input", null, {type: "checkbox", "aria-label": `show ${run.name}`});
    box.checked = selected.has(run.name);
    box.addEventListener("change", () => {
      if (box.checked) selected.add(run.name); else selected.delete(run.name);
      drawCurves();
    });
    cell.append(box);
    return cell;
  }

  function link(run) {
    const cell = element("td");
    cell.append(element("a", run.name, {href: `/run?name=${encodeURIComponent(run.name)}`}));
    return cell;
  }

  function state(run) {
    const cell = element("td");
    cell.append(element("span", run.state, {class: `state ${run.state}`, title: run.problem ?? ""}));
    return cell;
  }

  function list() {
    const text = filter.elements.filter.value.trim().toLowerCase();
    const shown = known.filter((run) => run.name.toLowerCase().includes(text));
    const focused = document.activeElement?.getAttribute("aria-label");
    fill(get("runs"), ["", "run", "state", "net", "step", "monitor", "best", "at step", "last", "time", "started"], shown.map((run) => [
      choice(run), link(run), state(run), run.net, run.step === null ? "" : `${run.step} / ${run.steps ?? "?"}`, run.monitor,
      value(run.best), value(run.best_step), value(run.last), duration(run.seconds), (run.started ?? "").replace("T", " ").slice(0, 16),
    ]));
    if (focused?.startsWith("show ")) get("runs").querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  }

  async function read(address) {
    const answer = await fetch(address);
    if (!answer.ok) throw new Error(await answer.text());
    return answer.json();
  }

  async function drawCurves() {
    const chosen = known.filter((run) => selected.has(run.name));
    const axis = controls.elements.axis.value, logarithmic = controls.elements.log.checked;
    const key = JSON.stringify([axis, logarithmic, chosen.map((run) => [run.name, run.step, run.state])]);
    if (key === drawn) return;
    const keepRange = drawn !== "" && JSON.parse(drawn)[0] === axis;
    drawn = key;
    const query = new URLSearchParams([["axis", axis], ...chosen.map((run) => ["run", run.name])]);
    try {
      const data = await read(`/api/curves?${query}`);
      if (drawn !== key) return; // another selection was made since
      charts.logarithmic = logarithmic;
      charts.draw(data.charts, {keepRange});
      get("no-curves").hidden = data.charts.length > 0;
      const settings = Object.entries(data.settings);
      fill(get("settings"), ["setting", ...data.runs], settings.map(([name, values]) => [name, ...values.map(value)]));
    } catch (error) {
      drawn = "";
      get("status").textContent = error.message;
    }
  }

  async function refresh() {
    try {
      const data = await read("/api/runs");
      known = data.runs;
      if (first) known.slice(0, 4).forEach((run) => selected.add(run.name));
      first = false;
      list();
      const running = known.filter((run) => run.state === "running").length;
      get("status").textContent = `${data.folder}: ${known.length} runs, ${running} running; read ${new Date().toLocaleTimeString("en-GB")}`;
      await drawCurves();
    } catch (error) {
      get("status").textContent = `no answer: ${error.message}`;
    }
  }

  filter.addEventListener("submit", (event) => event.preventDefault());
  filter.elements.filter.addEventListener("input", list);
  controls.addEventListener("change", drawCurves);
  netspec.control(controls, charts);
  refresh();
  setInterval(() => { if (!document.hidden) refresh(); }, EVERY);
})();
