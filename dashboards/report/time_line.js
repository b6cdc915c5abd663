// The time line of one recording: charts over one another that zoom and are read together.
const PANELS = [
  ["step time", "s", [["step_mean_s", "mean", "observed"], ["bound_s", null, "reachable"], ["floor_s", "floor", "floor"]]],
  ["longest step", "s", [["step_max_s", "longest", "waste"]]],
  ["steps/s", "", [["steps_per_s", "steps/s", "observed"]]],
  ["tokens/s", "", [["tokens_per_s", "generated tokens/s", "observed"]]],
  ["sequences", "", [["batch", "batch", "observed"], ["waiting", "waiting", "waste"]]],
  ["used", "%", [["kv_used_ratio", "KV cache", "kv"], ["mbu", "MBU", "observed"], ["mfu", "MFU", "waste"]]],
  ["lost", "s", [["wasted_device_s", "lost in a window", "waste"]]],
];
const HEIGHTS = { "step time": 190 };
const HEIGHT = 96;
const KEYS = {
  ArrowLeft: (line) => line.move(-0.25), ArrowRight: (line) => line.move(0.25), "+": (line) => line.scale(0.5),
  "=": (line) => line.scale(0.5), "-": (line) => line.scale(2), 0: (line) => line.whole(),
};

function shade(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function figure(value, unit) {
  if (value === null || value === undefined) return "–";
  const digits = (number) => (Math.abs(number) >= 99.5 ? Math.round(number).toLocaleString("en") : Number(number.toPrecision(3)).toString());
  if (unit === "%") return `${digits(value * 100)} %`;
  if (unit !== "s" || value === 0) return digits(value) + (unit ? ` ${unit}` : "");
  if (Math.abs(value) >= 0.9995) return `${digits(value)} s`;
  return Math.abs(value) >= 0.9995e-3 ? `${digits(value * 1e3)} ms` : `${digits(value * 1e6)} µs`;
}

function clock(unixS, widthS) {
  const text = new Date(unixS * 1000).toISOString();
  return `${text.slice(0, 10)} ${text.slice(11, widthS < 1 ? 23 : 19)}`;
}

function seriesOf(source) {
  return Array.from({ length: source.count }, (_, at) => source.start + at * source.width);
}

// Where a value has none on either side: a line leaves it out, so it is a point.
function alone(values) {
  return values.flatMap((value, at) => (value !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null ? [at] : []));
}

class TimeLine {
  constructor(place, data) {
    this.place = place;
    this.data = data;
    this.source = data.all;
    this.engine = null;
    this.plots = [];
    this.range = [data.all.start, data.all.start + data.all.count * data.all.width];
    this.edges = this.range.slice();
    this.tools();
    this.panels = element("div", { class: "panels", tabindex: "0", role: "group", "aria-label": "time line: arrows move, + and - zoom, 0 shows all" });
    this.here = element("p", { class: "here" });
    place.append(this.panels, this.here);
    this.heat();
    this.draw();
    this.panels.addEventListener("keydown", (event) => {
      if (!KEYS[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      KEYS[event.key](this);
    });
  }

  tools() {
    const bar = element("div", { class: "tools" });
    if (this.data.engines.length > 1) {
      const label = element("label", {}, "engine ");
      this.list = element("select");
      this.list.append(element("option", { value: "" }, `all ${this.data.engines.length}, together`));
      this.data.engines.forEach((engine, at) => this.list.append(element("option", { value: at }, engine.label)));
      this.list.addEventListener("change", () => this.choose(this.list.value === "" ? null : Number(this.list.value)));
      label.append(this.list);
      bar.append(label);
    }
    const buttons = [["zoom in", (l) => l.scale(0.5)], ["zoom out", (l) => l.scale(2)], ["←", (l) => l.move(-0.25), "earlier"],
      ["→", (l) => l.move(0.25), "later"], ["all", (l) => l.whole(), "show all of the time"]];
    for (const [text, act, told] of buttons) {
      const button = element("button", { type: "button", "aria-label": told || text }, text);
      button.addEventListener("click", () => act(this));
      bar.append(button);
    }
    bar.append(element("span", {}, "drag to zoom, double click for all; times are UTC"));
    this.place.append(bar);
  }

  choose(at) {
    this.engine = at;
    this.source = at === null ? this.data.all : this.data.engines[at];
    if (this.list) this.list.value = at === null ? "" : String(at);
    this.draw();
    this.paint();
  }

  draw() {
    this.plots.forEach((plot) => plot.destroy());
    this.plots = [];
    this.panels.textContent = "";
    this.times = seriesOf(this.source);
    const shown = PANELS.map(([title, unit, lines]) => [title, unit, lines.filter(([name]) => this.source.columns[name])]).filter(([, , lines]) => lines.length);
    shown.forEach(([title, unit, lines], at) => this.plots.push(this.chart(title, unit, lines, at === shown.length - 1)));
    this.show(...this.range);
  }

  chart(title, unit, lines, last) {
    const box = element("div", { class: "chart" });
    this.panels.append(box);
    const axis = { stroke: shade("quiet"), font: "12px system-ui, 'DejaVu Sans', sans-serif", grid: { stroke: shade("edge"), width: 1 }, ticks: { stroke: shade("edge"), width: 1 } };
    const series = lines.map(([, name, colour], at) => ({
      label: at === 0 && lines.length > 1 ? `${title}: ${name}` : name || this.data.basis, stroke: shade(colour), width: 1.4, spanGaps: false,
      paths: uPlot.paths.stepped({ align: 1 }), points: { show: false, size: 5, fill: shade(colour), filter: (plot, at) => alone(plot.data[at]) }, value: (_, value) => figure(value, unit),
      fill: at === 0 && lines.length === 1 ? `${shade(colour)}22` : undefined,
    }));
    const options = {
      width: this.width(), height: (HEIGHTS[title] || HEIGHT) + (last ? 38 : 0), ms: 1e-3, legend: { live: true }, padding: [null, 34, null, null],
      tzDate: (unixS) => uPlot.tzDate(new Date(unixS * 1e3), "Etc/UTC"),
      cursor: { y: false, sync: { key: `line-${this.data.number}` }, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => () => { this.whole(); return null; } } },
      scales: { x: { time: true }, y: { range: (_, low, high) => [0, (high || 1) * 1.08] } },
      axes: [{ ...axis, size: last ? 46 : 8, gap: 4, space: 90, values: (_, ticks) => (last ? this.hours(ticks) : ticks.map(() => "")) },
        { ...axis, size: 66, space: 22, values: (_, ticks) => ticks.map((tick) => figure(tick, unit)) }],
      series: [{ label: "UTC", value: (_, at) => (at === null || at === undefined ? "–" : clock(at, this.source.width)) }, ...series],
      hooks: { drawClear: [(plot) => this.marks(plot)], setSelect: [(plot) => this.selected(plot)], setCursor: [(plot) => this.hover(plot)] },
    };
    return new uPlot(options, [this.times, ...lines.map(([name]) => this.source.columns[name])], box);
  }

  // Times of day, with the day where it is another one than before.
  hours(ticks) {
    let day = "";
    return ticks.map((tick) => {
      const text = clock(tick, ticks.length > 1 ? ticks[1] - ticks[0] : this.source.width), before = day;
      day = text.slice(0, 10);
      return text.slice(11).replace(/(\.\d*?)0+$/, "$1") + (day !== before ? `\n${day}` : "");
    });
  }

  width() {
    return Math.max(280, this.place.clientWidth || 280);
  }

  selected(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    const range = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.show(...range);
  }

  show(from, to) {
    const least = Math.max(this.source.width * 2, 1e-3), most = this.edges[1] - this.edges[0];
    const span = Math.min(most, Math.max(to - from, least));
    const middle = (from + to) / 2;
    const low = Math.min(Math.max(middle - span / 2, this.edges[0]), this.edges[1] - span);
    this.range = [low, low + span];
    this.place.dataset.from = this.range[0];
    this.place.dataset.to = this.range[1];
    this.plots.forEach((plot) => plot.setScale("x", { min: this.range[0], max: this.range[1] }));
  }

  scale(by) {
    const [from, to] = this.range, middle = (from + to) / 2, half = ((to - from) / 2) * by;
    this.show(middle - half, middle + half);
  }

  move(by) {
    const [from, to] = this.range, step = (to - from) * by;
    this.show(from + step, to + step);
  }

  whole() {
    this.show(...this.edges);
  }

  shown() {
    const name = this.engine === null ? null : this.source.label;
    return this.data.marks.filter((mark) => name === null || mark.engine === name);
  }

  marks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const mark of this.shown()) {
      const from = plot.valToPos(mark.at, "x", true), to = mark.until === null ? from : plot.valToPos(mark.until, "x", true);
      ctx.globalAlpha = mark.kind === "finding" ? 0.22 : mark.kind === "worst" ? 0.16 : mark.kind === "event" ? 0.45 : 0.9;
      ctx.fillStyle = shade(mark.kind);
      ctx.fillRect(from, bbox.top, Math.max(mark.until === null ? 1.5 : 3, to - from), bbox.height);
    }
    ctx.restore();
  }

  hover(plot) {
    if (plot.cursor.idx === null || plot.cursor.idx === undefined || plot !== this.plots[0]) return;
    const at = plot.data[0][plot.cursor.idx], near = Math.max(this.source.width, (this.range[1] - this.range[0]) / 120);
    const found = this.shown().filter((mark) => mark.at - near <= at + this.source.width && (mark.until === null ? mark.at : mark.until) + near >= at);
    this.here.textContent = found.slice(0, 3).map((mark) => `${clock(mark.at, this.source.width)} ${mark.engine}, ${mark.kind}: ${mark.text}`).join("; ");
  }

  jump(from, to, engine) {
    const at = this.data.engines.findIndex((each) => each.label === engine);
    if (this.data.engines.length > 1 && at >= 0) this.choose(at);
    const beside = Math.max(this.source.width * 12, (to - from) * 12);
    this.show(from - beside, to + beside);
  }

  // One row an engine, one column a window: how much slower than its bound. A click chooses engine and time.
  heat() {
    const engines = this.data.engines.filter((each) => each.columns.slowdown);
    if (engines.length < 2) return;
    this.rows = engines;
    this.canvas = element("canvas", { class: "heat", role: "img", "aria-label": `engines by time: darker is slower beside ${this.data.bound}` });
    const most = engines.map((each) => each.columns.slowdown.reduce((high, value) => Math.max(high, value || 0), 0)).sort((a, b) => a - b);
    this.hottest = Math.max(1.5, most[Math.floor(most.length * 0.9)]);
    const told = `Every engine (rows, most lost first) over all of the time: from pale at ${this.data.bound} to full colour at ${figure(this.hottest, "")} times of it; a click looks closer.`;
    this.place.append(element("p", { class: "help" }, told), this.canvas);
    this.canvas.addEventListener("click", (event) => {
      const box = this.canvas.getBoundingClientRect();
      const row = Math.min(engines.length - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * engines.length)));
      const unixS = this.edges[0] + ((event.clientX - box.left) / box.width) * (this.edges[1] - this.edges[0]);
      this.jump(unixS, unixS + engines[row].width, engines[row].label);
    });
    this.paint();
  }

  paint() {
    if (!this.canvas) return;
    const count = this.rows[0].count, high = Math.max(4, Math.min(16, Math.floor(420 / this.rows.length)));
    this.canvas.width = count;
    this.canvas.height = this.rows.length;
    this.canvas.style.height = `${high * this.rows.length}px`;
    this.canvas.style.imageRendering = "pixelated";
    const pen = this.canvas.getContext("2d"), colour = shade("waste");
    this.rows.forEach((engine, row) => engine.columns.slowdown.forEach((value, at) => {
      if (value === null) return;
      pen.globalAlpha = 0.06 + 0.94 * Math.min(1, Math.max(0, (value - 1) / (this.hottest - 1)));
      pen.fillStyle = colour;
      pen.fillRect(at, row, 1, 1);
    }));
  }

  resize() {
    this.plots.forEach((plot) => plot.setSize({ width: this.width(), height: plot.height }));
  }
}
