"use strict";
// The report of a run: curves over a chosen axis, and histograms of parameters over time.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const get = (id) => document.getElementById(id);

  const curves = get("curves");
  if (curves) {
    const charts = new netspec.Charts(curves);
    const form = get("curve-controls");
    const draw = (keepRange) => {
      charts.logarithmic = form.elements.log.checked;
      charts.draw(data.charts[form.elements.axis.value], {keepRange});
    };
    form.elements.log.addEventListener("change", () => draw(true));
    form.querySelectorAll("input[name=axis]").forEach((input) => input.addEventListener("change", () => draw(false)));
    netspec.control(form, charts);
    draw(false);
  }

  const panel = get("histograms");
  if (panel) {
    const {steps, parameters} = data.histograms;
    const choice = get("parameter"), slider = get("moment"), label = get("moment-label");
    const width = () => Math.max(280, Math.min(1040, panel.clientWidth));
    const plots = [];

    function bars(entry) {
      if (!entry || !entry.counts) return [[0, 1], [null, null]];
      const low = entry.quantiles[0], high = entry.quantiles.at(-1), count = entry.counts.length;
      const [from, to] = high > low ? [low, high] : [low - 0.5, low + 0.5];
      return [entry.counts.map((_, index) => from + (to - from) * (index + 0.5) / count), entry.counts];
    }

    function draw() {
      plots.splice(0).forEach((plot) => plot.destroy());
      const entries = parameters[choice.value];
      const index = Number(slider.value);
      label.textContent = `step ${steps[index].toLocaleString("en")}`;
      slider.setAttribute("aria-valuetext", label.textContent);
      const quantiles = [0, 1, 2, 3, 4, 5, 6].map((at) => entries.map((entry) => entry?.quantiles?.[at] ?? null));
      const names = ["lowest", "5 %", "25 %", "median", "75 %", "95 %", "highest"];
      const blue = netspec.COLORS[0];
      const bands = [[7, 1], [6, 2], [5, 3]].map((series) => ({series, fill: blue + "33"}));
      plots.push(new uPlot({
        width: width(), height: 240, bands, scales: {x: {time: false}}, cursor: {drag: {x: true, y: false}},
        axes: netspec.axes("step"),
        series: [{label: "step"}, ...names.map((name, at) => ({label: name, stroke: blue, width: at === 3 ? 2 : 0.5,
          points: {show: steps.length < 40}, value: (_, value) => netspec.number(value)}))],
      }, [steps, ...quantiles], get("distribution")));
      plots.push(new uPlot({
        width: width(), height: 240, scales: {x: {time: false}, y: {range: (_, low, high) => [0, Math.max(high, 1) * 1.05]}},
        axes: netspec.axes("value"), cursor: {drag: {x: true, y: false}},
        series: [{label: "value", value: (_, value) => netspec.number(value)},
                 {label: "elements", stroke: blue, fill: blue + "88", paths: uPlot.paths.bars({size: [1, 100]}), points: {show: false}}],
      }, bars(entries[index]), get("histogram")));
    }

    choice.addEventListener("change", draw);
    slider.addEventListener("input", draw);
    new ResizeObserver(() => plots.forEach((plot) => plot.setSize({width: width(), height: 240}))).observe(panel);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    draw();
  }
})();
