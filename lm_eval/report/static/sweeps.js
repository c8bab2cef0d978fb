// Sweeps: a table of models and settings by tasks, and one curve per task over training steps.

const MOST_PANELS = 40;

const sweepMetric = (one) => one.filter === "none" ? one.metric : `${one.metric} ${one.filter}`;

function startSweeps() {
  if (!summary.sweeps.length) return;
  byId("sweeps").hidden = false;
  byId("sweep-content").append(...summary.sweeps.map(sweepTable));
}

function sweepTable(sweep) {
  const best = sweep.tasks.map((task, t) => {
    const values = sweep.lines.map((line) => line.scores[t]?.value).filter((value) => typeof value === "number");
    return task.higher === null || values.length < 2 ? null : task.higher ? Math.max(...values) : Math.min(...values);
  });
  const head = el("tr", {}, el("th", { scope: "col", text: "Model" }),
    sweep.settings.map((name) => el("th", { scope: "col" }, inline(name))),
    sweep.tasks.map((task) => el("th", { scope: "col", class: "number" }, inline(task.task), el("br"), el("span", { class: "metric" }, metricName(task)))));
  const body = sweep.lines.map((line) => el("tr", {}, el("th", { scope: "row", class: "name" }, inline(line.model)),
    line.labels.map((label) => el("td", {}, inline(label))),
    line.scores.map((score, t) => el("td", { class: "number" + (score && score.value === best[t] ? " best" : "") }, score ? scoreText(score) : "–"))));
  const name = `${sweep.name}, ${plural(sweep.runs, "run")}`;
  return el("div", { class: "sweep" }, summary.sweeps.length > 1 ? el("h3", {}, inline(name)) : null,
    el("p", { class: "note", text: "± is half the 95 % interval. The best score of each task is bold." }),
    el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Scores of the sweep " + sweep.name },
      el("table", { class: "sweep-table" }, el("caption", { class: "visually-hidden", text: "Models and settings by tasks" }), el("thead", {}, head), el("tbody", {}, body))),
    sweep.failed.length ? el("div", { class: "missing" }, el("p", { class: "warning", text: `${plural(sweep.failed.length, "run")} failed:` }),
      el("ul", {}, sweep.failed.map((run) => el("li", {}, inline(run.name, { class: "run-name" }), ": ", inline(run.message))))) : null);
}

/** Returns a number for an axis: 12,000 as 12K. */
const compact = (value) => Math.abs(value) >= 10000 ? value.toLocaleString("en", { notation: "compact" }) : tickText(value);

/** Returns whether values span so much that only a logarithmic axis shows them, as perplexities do. */
const spansMuch = (values) => Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) > 100;

/** Returns the vertical axis of curves: its ends, its ticks, and the position of a value on it. */
function curveAxis(points, bottom, top) {
  const values = points.map((point) => point.value);
  if (!spansMuch(values)) {
    const [from, to] = curveRange(points, values), y = scale(from, to, bottom, top);
    return { marks: ticks(from, to, 4), y: (value) => y(Math.min(to, Math.max(from, value))), note: "" };
  }
  const from = Math.log10(Math.min(...values)) - 0.3, to = Math.log10(Math.max(...values)) + 0.3, y = scale(from, to, bottom, top);
  const every = Math.ceil((to - from) / 5), marks = [];
  for (let power = Math.ceil(from / every) * every; power <= to; power += every) marks.push(10 ** power);
  return { marks, y: (value) => y(value > 0 ? Math.min(to, Math.max(from, Math.log10(value))) : from), note: ", logarithmic" };
}

/** Returns the ends of an axis that shows all points of a curve with their intervals. */
function curveRange(points, values) {
  const share = Math.min(...values) >= 0 && Math.max(...values) <= 1;
  const span = Math.max(...values) - Math.min(...values) || Math.abs(values[0]) || 1;
  // A huge interval of one point must not flatten the curve.
  const lows = points.map((point) => Math.max(point.low ?? point.value, Math.min(...values) - 2 * span));
  const highs = points.map((point) => Math.min(point.high ?? point.value, Math.max(...values) + 2 * span));
  let from = Math.min(...lows), to = Math.max(...highs);
  const pad = (to - from || span) * 0.06;
  from -= pad;
  to += pad;
  if (share) return [Math.max(0, from), Math.min(1, to)];
  return [Math.min(...values) >= 0 ? Math.max(0, from) : from, to];
}

/** Draws the curves of one task into a part of a picture. */
function curvePanel(picture, curve, labels, { left, right, top, bottom, steps, logarithmic }) {
  const points = curve.series.flatMap((one) => one.points).filter((point) => point.value !== null);
  const { marks, y, note } = curveAxis(points, bottom, top);
  const place = (step) => logarithmic ? Math.log10(step) : step;
  const x = scale(place(steps[0]), place(steps[steps.length - 1]), left + 8, right - 8);
  const arrow = curve.higher === true ? " ↑" : curve.higher === false ? " ↓" : "";
  picture.append(svg("text", { class: "row-label strong", x: left - 44, y: top - 26, text: fitted(curve.task, right - left) }));
  yAxis(picture, y, marks, { left, right, top, label: "", format: compact });
  picture.append(svg("text", { class: "label", x: left - 44, y: top - 10, text: fitted(sweepMetric(curve) + arrow + note, right - left) }));
  const fit = Math.max(2, Math.floor((right - left) / 64));
  const marked = steps.length <= fit ? steps
    : logarithmic ? steps.filter((_, i) => i % Math.ceil(steps.length / fit) === 0)
    : ticks(steps[0], steps[steps.length - 1], fit).filter((value) => value >= steps[0]);
  xAxis(picture, (value) => x(place(value)), marked, { top, bottom, label: logarithmic ? "training step (logarithmic)" : "training step",
    format: compact, middle: (left + right) / 2, left, right });
  curve.series.forEach((one) => {
    const run = labels.indexOf(one.label);
    const known = one.points.filter((point) => point.value !== null);
    const group = svg("g", { class: "run-" + (run % 6) });
    const bounded = known.filter((point) => point.low !== null);
    if (bounded.length > 1) {
      const edge = [...bounded.map((point) => [point.step, point.high]), ...bounded.map((point) => [point.step, point.low]).reverse()];
      group.append(svg("polygon", { class: "band", points: edge.map(([step, value]) => `${x(place(step))},${y(value)}`).join(" ") }));
    }
    group.append(svg("polyline", { class: "line", points: known.map((point) => `${x(place(point.step))},${y(point.value)}`).join(" ") }));
    for (const point of known) {
      const at = x(place(point.step));
      if (point.low !== null) group.append(svg("line", { class: "whisker", x1: at, x2: at, y1: y(point.low), y2: y(point.high) }));
      group.append(svg("g", {}, svg("title", { text: curveText(curve, one, point) }), marker(run, at, y(point.value), 4)));
    }
    picture.append(group);
  });
}

const curveText = (curve, one, point) => `${curve.task}, ${one.label}, step ${count(point.step)}: ${number(point.value)}` + (point.low === null ? "" : ` (${number(point.low)} to ${number(point.high)})`);

addPlot({
  id: "curves", title: "Scores during training", wide: true, note: "One curve per task. Lines and bands are 95 % intervals.",
  draw(width) {
    const curves = summary.sweeps.flatMap((sweep) => sweep.curves).filter((curve) => curve.series.some((one) => one.points.some((point) => point.value !== null))).slice(0, MOST_PANELS);
    if (!curves.length) return null;
    const labels = [...new Set(curves.flatMap((curve) => curve.series.map((one) => one.label)))];
    const steps = [...new Set(curves.flatMap((curve) => curve.series.flatMap((one) => one.points.map((point) => point.step))))].sort((a, b) => a - b);
    const logarithmic = spansMuch(steps);
    const columns = Math.min(curves.length === 4 ? 2 : curves.length, width >= 960 ? 3 : width >= 600 ? 2 : 1);
    const each = width / columns, height = 280, panel = 170;
    const picture = canvas(width, Math.ceil(curves.length / columns) * height);
    curves.forEach((curve, i) => {
      const start = (i % columns) * each, top = Math.floor(i / columns) * height + 50;
      curvePanel(picture, curve, labels, { left: start + 48, right: start + each - 22, top, bottom: top + panel, steps, logarithmic });
    });
    const legend = labels.length > 1 ? el("ul", { class: "legend" }, labels.map((label, i) => el("li", {}, runMark(i), inline(label)))) : null;
    const description = curves.flatMap((curve) => curve.series.map((one) => `${curve.task}, ${one.label}: ` + one.points.filter((point) => point.value !== null).map((point) => `${number(point.value)} at step ${count(point.step)}`).join(", "))).slice(0, 20).join(". ");
    return { picture, description, legend };
  },
});
