"use strict";
// Charts of curves (uPlot) that zoom together: used by the report of a run and by the board.
const netspec = (() => {
  // Okabe and Ito 2008, changed where a color is not visible on both dark and light paper: blue, yellow and black.
  const COLORS = ["#1f8bd1", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#808080"];
  const DASHES = [[], [6, 3], [2, 2], [10, 4]];
  const HEIGHT = 260;

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function axes(x, logarithmic) {
    const look = () => ({stroke: () => color("--ink"), grid: {stroke: () => color("--line"), width: 1},
                         ticks: {stroke: () => color("--line"), width: 1}, font: "12px system-ui, sans-serif"});
    return [{...look(), label: x, labelSize: 20}, {...look(), size: 70, values: (_, values) => values.map(number)}];
  }

  function number(value) {
    if (value === null || value === undefined) return "";
    if (Number.isSafeInteger(value)) return String(value); // steps and seeds
    const size = Math.abs(value);
    return size !== 0 && (size >= 1e6 || size < 1e-3) ? value.toExponential(2) : String(+value.toPrecision(5));
  }

  // Colors and dashes: a color for each curve, or for each group, in which the kinds are dashed differently.
  function styles(curves) {
    const groups = [...new Set(curves.map((curve) => curve.group ?? curve.name))];
    const kinds = [...new Set(curves.map((curve) => curve.kind ?? ""))].sort((a, b) => a.startsWith("training") - b.startsWith("training"));
    return curves.map((curve) => ({
      stroke: COLORS[groups.indexOf(curve.group ?? curve.name) % COLORS.length],
      dash: DASHES[kinds.indexOf(curve.kind ?? "") % DASHES.length],
    }));
  }

  function makeLegendOperable(plot) {
    for (const row of plot.root.querySelectorAll(".u-legend .u-series:not(:first-child) th")) {
      row.tabIndex = 0;
      row.setAttribute("role", "button");
      row.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); row.click(); }
      });
    }
  }

  // A set of charts in a container, redrawn from data; all have the same range of x.
  class Charts {
    constructor(container) {
      this.container = container;
      this.plots = [];
      this.range = null;
      this.logarithmic = false;
      new ResizeObserver(() => this.plots.forEach((plot) => plot.setSize({width: this.width(), height: HEIGHT}))).observe(container);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.plots.forEach((plot) => plot.redraw()));
    }

    width() { return Math.max(280, Math.min(1040, this.container.clientWidth)); }

    draw(charts, {keepRange = true} = {}) {
      const hidden = new Set(this.plots.flatMap((plot) => plot.series.slice(1).filter((each) => !each.show).map((each) => each.label)));
      this.plots.forEach((plot) => plot.destroy());
      this.container.replaceChildren();
      if (!keepRange) this.range = null;
      this.plots = charts.map((chart) => this.plot(chart, hidden));
      this.extent = [Infinity, -Infinity];
      for (const chart of charts)
        for (const {x} of chart.curves)
          if (x.length) this.extent = [Math.min(this.extent[0], x[0]), Math.max(this.extent[1], x.at(-1))];
      if (this.range) this.zoomTo(...this.range);
    }

    plot(chart, hidden) {
      const figure = document.createElement("figure");
      const title = document.createElement("figcaption");
      title.textContent = chart.title;
      figure.append(title);
      this.container.append(figure);
      const usable = (y) => y !== null && (!this.logarithmic || y > 0);
      const tables = chart.curves.map(({x, y}) => [x, y.map((value) => usable(value) ? value : null)]);
      const data = tables.length ? uPlot.join(tables) : [[]];
      const looks = styles(chart.curves);
      const options = {
        width: this.width(), height: HEIGHT,
        scales: {x: {time: false}, y: {distr: this.logarithmic ? 3 : 1}},
        cursor: {drag: {x: true, y: false}, sync: {key: "netspec"}},
        axes: axes(chart.x, this.logarithmic),
        series: [{label: chart.x, value: (_, value) => number(value)}, ...chart.curves.map((curve, index) => ({
          label: curve.note ? `${curve.name} (${curve.note})` : curve.name, spanGaps: true, width: 1.5, ...looks[index],
          show: !hidden.has(curve.name), points: {show: curve.x.length < 40}, value: (_, value) => number(value),
        }))],
        hooks: {setScale: [(plot, key) => { if (key === "x") this.follow(plot); }]},
      };
      const plot = new uPlot(options, data, figure);
      makeLegendOperable(plot);
      return plot;
    }

    // One chart was zoomed, by the mouse or by a button: the others follow.
    follow(plot) {
      const {min, max} = plot.scales.x;
      if (min === undefined || min === null || !this.plots.includes(plot)) return;
      this.range = [min, max];
      for (const other of this.plots)
        if (other !== plot && (other.scales.x.min !== min || other.scales.x.max !== max)) other.setScale("x", {min, max});
    }

    zoomTo(min, max) { this.plots.forEach((plot) => plot.setScale("x", {min, max})); }

    zoom(factor) { const [min, max] = this.view(); const middle = (min + max) / 2, half = (max - min) / 2 / factor; this.zoomTo(middle - half, middle + half); }

    move(share) { const [min, max] = this.view(); const by = (max - min) * share; this.zoomTo(min + by, max + by); }

    view() { return this.range ?? this.extent; }

    reset() { this.range = null; this.zoomTo(...this.extent); this.range = null; }
  }

  // Buttons of a form with `data-action` control charts.
  function control(form, charts) {
    const actions = {in: () => charts.zoom(2), out: () => charts.zoom(0.5), left: () => charts.move(-0.25),
                     right: () => charts.move(0.25), reset: () => charts.reset()};
    for (const button of form.querySelectorAll("button[data-action]"))
      button.addEventListener("click", () => actions[button.dataset.action]());
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  return {Charts, control, axes, number, color, COLORS};
})();
