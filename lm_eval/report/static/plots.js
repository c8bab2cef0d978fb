// The plots. Their counts come with the summary, so that no sample has to be unpacked.

const MOST_LINES = 60;
const FEW_LINES = 30;
let plotTask = "";
const unfolded = new Set(); // plots of which all lines are shown

/** Returns the lines of a plot that are shown at once: groups first, if there are too many. */
function foldedLines(id, lines) {
  if (lines.length <= FEW_LINES || unfolded.has(id)) return lines;
  const strong = lines.filter((line) => line.strong);
  return [...strong, ...lines.filter((line) => !line.strong)].slice(0, Math.max(FEW_LINES / 2, strong.length));
}

/** Returns the button that shows all lines of a plot, or fewer again; null if all fit. */
function unfoldButton(id, lines) {
  if (lines.length <= FEW_LINES) return null;
  const open = unfolded.has(id);
  return el("button", { type: "button", class: "more", "aria-expanded": String(open), on: { click: () => {
    if (open) unfolded.delete(id); else unfolded.add(id);
    drawPlots();
    byId("plot-" + id).querySelector(".more")?.focus();
  } }, text: open ? "Show fewer rows" : `Show all ${count(lines.length)} rows` });
}

/** Draws lines of values with intervals, one line per label and one mark per run. */
function dotPlot(lines, width, { from, to, label, zero = false, values }) {
  const narrow = width < 520;
  const marks = Math.max(1, ...lines.map((line) => line.marks.length));
  const labels = narrow ? 8 : Math.min(260, Math.max(90, ...lines.map((line) => 24 + textWidth(line.label))));
  const row = (narrow ? 26 : 14) + 10 * marks;
  const top = 6, bottom = top + lines.length * row;
  const picture = canvas(width, bottom + 42);
  const x = scale(from, to, labels + 6, width - 14);
  const axis = ticks(from, to, narrow ? 4 : 6);
  xAxis(picture, x, axis, { top, bottom, label, middle: (labels + width) / 2, left: x(from), right: x(to) });
  if (zero) picture.append(svg("line", { class: "zero", x1: x(0), x2: x(0), y1: top, y2: bottom }));
  lines.forEach((line, i) => {
    const y = top + i * row;
    picture.append(svg("text", { class: "row-label" + (line.strong ? " strong" : ""), x: narrow ? labels : labels - 6, y: narrow ? y + 13 : y + row / 2 + 4,
      "text-anchor": narrow ? "start" : "end" }, ...rowLabel(line.label, narrow ? width - 20 : labels - 10)));
    line.marks.forEach((mark, m) => {
      if (!mark) return;
      const at = y + (narrow ? 18 : 7) + 10 * m + 5;
      const group = svg("g", { class: `run-${mark.run % 6}${mark.faint ? " faint" : ""}` }, svg("title", { text: mark.title }));
      const clip = (value) => Math.min(to, Math.max(from, value));
      if (mark.low !== null && mark.low !== undefined) {
        group.append(svg("line", { class: "whisker", x1: x(clip(mark.low)), x2: x(clip(mark.high)), y1: at, y2: at }));
        for (const end of [mark.low, mark.high]) {
          if (end >= from && end <= to) group.append(svg("line", { class: "whisker", x1: x(end), x2: x(end), y1: at - 3, y2: at + 3 }));
        }
      }
      if (values) for (const value of values(mark)) group.append(svg("circle", { class: "point", cx: x(value), cy: at, r: 3 }));
      else group.append(marker(mark.run, x(clip(mark.value)), at));
      picture.append(group);
    });
  });
  return picture;
}

/** A label of two parts, the second of which is paler. */
function rowLabel(label, pixels) {
  const shown = fitted(label, pixels), cut = shown.indexOf("  ");
  return cut < 0 ? [shown] : [shown.slice(0, cut) + " ", svg("tspan", { class: "pale", dx: 4, text: shown.slice(cut + 2) })];
}

const metricLabel = (one) => one.filter === "none" ? one.metric : `${one.metric} ${one.filter}`;

addPlot({
  id: "scores", title: "Scores with intervals", wide: true,
  draw(width) {
    let lines = [];
    const rows = [...new Map(summary.table.rows.map((row) => [row.name, row])).values()];
    for (const row of rows) {
      for (const score of row.scores.filter(isShare)) lines.push({ row, score, first: score === row.scores.filter(isShare)[0] });
    }
    if (lines.length > MOST_LINES) lines = lines.filter((line) => line.first);
    if (!lines.length) return null;
    const left = lines.length - MOST_LINES * 2;
    lines = lines.slice(0, MOST_LINES * 2);
    const shown = lines.map(({ row, score }) => ({
      label: `${row.alias}  ${metricLabel(score)}`, strong: row.group,
      marks: score.values.map((value, run) => value && { run, ...value, title: `${row.alias}, ${metricLabel(score)}, ${runs[run].label}: ${number(value.value)}` + (value.low === null ? "" : ` (${number(value.low)} to ${number(value.high)})`) }),
    }));
    const description = shown.slice(0, 20).flatMap((line) => line.marks.filter(Boolean).map((mark) => mark.title)).join(". ");
    const extra = [left > 0 ? el("p", { class: "note", text: `The table has ${left} more rows.` }) : null, unfoldButton("scores", shown)];
    return { picture: dotPlot(foldedLines("scores", shown), width, { from: 0, to: 1, label: "score" }), description, extra };
  },
});

addPlot({
  id: "differences", title: "Paired differences", wide: true,
  note: "",
  draw(width) {
    const found = summary.differences;
    if (!found) return null;
    const usable = found.rows.filter((row) => row.low !== null && row.higher !== false && Math.max(Math.abs(row.low), Math.abs(row.high)) <= 1);
    if (!usable.length) return null;
    const keys = new Map();
    for (const row of usable) {
      const key = `${row.name}  ${metricLabel(row)}`;
      if (!keys.has(key)) keys.set(key, { label: key, strong: row.group, marks: [] });
      // The table of `compare` has the first run minus another; the plot shows the other minus the first.
      keys.get(key).marks.push({ run: row.second, value: -row.value, low: -row.high, high: -row.low, faint: row.better === null,
        title: `${key}: ${runs[row.second].label} minus ${runs[row.first].label} ${signed(-row.value)} (${signed(-row.high)} to ${signed(-row.low)}), p = ${number(row.p)}, ${plural(row.n, "document")}` });
    }
    const lines = [...keys.values()].slice(0, MOST_LINES * 2);
    const reach = Math.max(0.02, ...lines.flatMap((line) => line.marks.flatMap((mark) => [Math.abs(mark.low), Math.abs(mark.high)])));
    const picture = dotPlot(foldedLines("differences", lines), width, { from: -reach * 1.05, to: reach * 1.05, zero: true, label: `difference to ${fitted(runs[found.rows[0].first].label, 220)}` });
    const description = lines.slice(0, 20).flatMap((line) => line.marks.map((mark) => mark.title)).join(". ");
    return { picture, description, extra: [unfoldButton("differences", lines), differenceTable(found)] };
  },
});

function differenceTable(found) {
  const unequal = [...new Set(found.rows.flatMap((row) => row.unequal.map((text) => `${row.name}: ${text}`)))];
  const head = ["Task", "Metric", "Run", "Difference", "Interval", "p", "p Holm", "Wins", "Documents"];
  const body = found.rows.map((row) => el("tr", {},
    el("th", { scope: "row", class: "name" }, inline(row.name)), el("td", {}, inline(metricLabel(row))),
    el("td", {}, inline(runs[row.second].label)),
    el("td", { class: "number", text: row.value === null ? "" : signed(-row.value) }),
    el("td", { class: "number", text: row.low === null ? "" : `${signed(-row.high)} to ${signed(-row.low)}` }),
    el("td", { class: "number", text: row.p === null ? "" : row.p < 0.0001 ? "< 0.0001" : number(row.p) }),
    el("td", { class: "number", text: row.holm === null ? "" : row.holm < 0.0001 ? "< 0.0001" : number(row.holm) }),
    el("td", { class: "number", text: row.wins[0] === null ? "" : `${row.wins[1]} : ${row.wins[0]}` }),
    el("td", { class: "number", text: count(row.n) })));
  return el("div", {},
    el("p", { class: "note" }, `On the same documents, with ${percent(found.confidence)} intervals. Pale marks are undecided: interval or test do not exclude 0. A positive difference is better than the first run.`),
    unequal.length ? el("p", { class: "warning" }, "The runs differ in more than the model: ", inline(unequal.slice(0, 6).join("; ")), unequal.length > 6 ? " …" : ".") : null,
    el("details", { class: "data" }, el("summary", { text: "Numbers" }),
      el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Paired differences as a table" },
        el("table", {}, el("thead", {}, el("tr", {}, head.map((text, i) => el("th", { scope: "col", class: i > 2 ? "number" : "", text })))), el("tbody", {}, body)))));
}

addPlot({
  id: "spread", title: "Prompt spread", wide: true, note: "Each point is one setting of the study: a prompt format, a number of examples, a seed.",
  draw(width) {
    const lines = [];
    const models = [...new Set(summary.studies.flatMap((study) => study.models))];
    for (const study of summary.studies) {
      const keys = [...new Set(study.scores.map((score) => score.task))];
      for (const task of keys) for (const model of study.models) {
        const scores = study.scores.filter((score) => score.task === task && score.model === model && typeof score.value === "number");
        if (!scores.length) continue;
        const numbers = scores.map((score) => score.value);
        const low = scores.find((score) => score.value === Math.min(...numbers)), high = scores.find((score) => score.value === Math.max(...numbers));
        lines.push({ label: `${task}  ${model}`, marks: [{ run: models.indexOf(model), all: numbers, low: low.value, high: high.value,
          title: `${task}, ${model}: ${scores.length} settings, from ${number(low.value)} (${low.setting}) to ${number(high.value)} (${high.setting})` }] });
      }
    }
    const numbers = lines.flatMap((line) => line.marks[0].all);
    if (!numbers.length) return null;
    const share = Math.min(...numbers) >= 0 && Math.max(...numbers) <= 1;
    const [from, to] = share ? [0, 1] : [Math.min(...numbers), Math.max(...numbers)];
    return { picture: dotPlot(lines.slice(0, MOST_LINES), width, { from, to, label: "score", values: (mark) => mark.all }), description: lines.map((line) => line.marks[0].title).join(". "),
      extra: el("ul", { class: "note plain" }, lines.slice(0, 12).map((line) => el("li", {}, inline(line.marks[0].title)))) };
  },
});

/** Returns the sum of a list of counts over the chosen tasks, for one run; null without any. */
function summed(run, field) {
  let sum = null;
  for (const task of tasks) {
    const found = (!plotTask || task.name === plotTask) ? task.plots[run]?.[field] : null;
    if (!found) continue;
    const flat = found.flat();
    if (sum === null) sum = flat.slice();
    else flat.forEach((value, i) => { sum[i] += value; });
  }
  return sum;
}

addPlot({
  id: "calibration", title: "Calibration", note: "How often the most likely choice is right, by the probability that the model gives it among the choices.",
  draw(width) {
    const found = runs.map((_, run) => summed(run, "calibration"));
    if (!found.some(Boolean)) return null;
    const left = 40, right = width - 14, top = 30, height = Math.min(300, Math.max(200, width * 0.7)), bottom = top + height;
    const picture = canvas(width, bottom + 42);
    const x = scale(0, 1, left, right), y = scale(0, 1, bottom, top);
    yAxis(picture, y, [0, 0.25, 0.5, 0.75, 1], { left, right, top, label: "share right" });
    xAxis(picture, x, [0, 0.25, 0.5, 0.75, 1], { top, bottom, label: "confidence", middle: (left + right) / 2 });
    picture.append(svg("line", { class: "diagonal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
    const errors = [];
    found.forEach((bins, run) => {
      if (!bins) return;
      const group = svg("g", { class: "run-" + (run % 6) });
      const points = [];
      let all = 0, error = 0;
      for (let i = 0; i < bins.length; i += 3) {
        const [n, confidence, rights] = bins.slice(i, i + 3);
        if (!n) continue;
        all += n;
        error += Math.abs(confidence - rights);
        points.push({ n, x: confidence / n, y: rights / n, interval: wilson(rights, n) });
      }
      group.append(svg("polyline", { class: "line", points: points.map((p) => `${x(p.x)},${y(p.y)}`).join(" ") }));
      const largest = Math.max(...points.map((p) => p.n));
      for (const p of points) {
        group.append(svg("line", { class: "whisker", x1: x(p.x), x2: x(p.x), y1: y(p.interval[0]), y2: y(p.interval[1]) }),
          svg("g", {}, svg("title", { text: `${runs[run].label}: confidence ${p.x.toFixed(2)}, right ${percent(p.y)} of ${p.n}` }), marker(run, x(p.x), y(p.y), 2.5 + 3 * Math.sqrt(p.n / largest))));
      }
      picture.append(group);
      errors.push(`${runs[run].label}: expected calibration error ${(error / all).toFixed(3)}, ${plural(all, "document")}`);
    });
    return { picture, description: errors.join(". "), extra: el("ul", { class: "note plain" }, errors.map((text) => el("li", {}, inline(text)))) };
  },
});

/** Returns the 95 % interval of a share by Wilson's method. */
function wilson(hits, n) {
  const z = 1.96, share = hits / n, middle = (share + z * z / (2 * n)) / (1 + z * z / n);
  const half = z * Math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n);
  return [middle - half, middle + half];
}

/** Draws one histogram per run, of right and wrong answers. */
function histograms(field, width, { label, edges, format }) {
  const found = runs.map((_, run) => summed(run, field));
  if (!found.some(Boolean)) return null;
  const bins = found.find(Boolean).length / 3;
  const used = Math.max(...found.filter(Boolean).flatMap((counts) => counts.map((n, i) => (n ? i % bins : 0)))) + 1;
  const first = Math.min(...found.filter(Boolean).flatMap((counts) => counts.map((n, i) => (n ? i % bins : bins))));
  const begin = field === "lengths" ? Math.max(0, first - 1) : 0, end = Math.max(used, begin + 4);
  const left = 44, right = width - 14, each = runs.length > 2 ? 84 : runs.length > 1 ? 116 : 220, gap = 34;
  const picture = canvas(width, found.filter(Boolean).length * (each + gap) + 36);
  const words = [];
  let top = 30;
  found.forEach((counts, run) => {
    if (!counts) return;
    const rows = [0, 1, 2].map((row) => counts.slice(row * bins, (row + 1) * bins));
    const most = Math.max(...rows[0].map((_, i) => rows[0][i] + rows[1][i] + rows[2][i]));
    const bottom = top + each;
    const x = scale(begin, end, left, right), y = scale(0, most, bottom, top);
    yAxis(picture, y, ticks(0, most, 3), { left, right, top, label: runs.length > 1 ? "" : "documents" });
    if (runs.length > 1) picture.append(svg("g", { class: "run-" + (run % 6) }, marker(run, 5, top - 18, 4), svg("text", { class: "label", x: 16, y: top - 14, text: fitted(runs[run].label, width - 110) + ", documents" })));
    for (let i = begin; i < end; i++) {
      let base = 0;
      ["right", "wrong", "neither"].forEach((kind, row) => {
        const n = rows[row][i] ?? 0;
        if (!n) return;
        const h = y(base) - y(base + n);
        picture.append(svg("rect", { class: kind, x: x(i) + 0.75, width: Math.max(1, x(i + 1) - x(i) - 1.5), y: y(base + n), height: Math.max(h, 0.75) },
          svg("title", { text: `${format(i)}: ${plural(n, "document")}${row < 2 ? " " + kind : ""}` })));
        base += n;
      });
    }
    picture.append(svg("line", { class: "base", x1: left, x2: right, y1: bottom, y2: bottom }));
    const sums = rows.map((row) => row.reduce((a, b) => a + b, 0));
    words.push(`${runs[run].label}: ${count(sums[0])} right, ${count(sums[1])} wrong` + (sums[2] ? `, ${count(sums[2])} not judged` : ""));
    top = bottom + gap;
    if (found.slice(run + 1).every((one) => !one)) {
      for (const edge of edges(begin, end, width)) picture.append(svg("text", { class: "tick", x: x(edge.at), y: bottom + 16, "text-anchor": "middle", text: edge.text }));
      picture.append(svg("text", { class: "label", x: (left + right) / 2, y: bottom + 34, "text-anchor": "middle", text: label }));
    }
  });
  const kinds = ["right", "wrong", "neither"].filter((_, row) => found.some((counts) => counts?.slice(row * bins, (row + 1) * bins).some(Boolean)));
  const legend = el("ul", { class: "legend kinds" }, kinds.map((kind) => el("li", {}, el("span", { class: "swatch " + kind, "aria-hidden": "true" }), { right: "right", wrong: "wrong", neither: "not judged" }[kind])));
  return { picture, description: words.join(". "), legend };
}

addPlot({
  id: "margins", title: "Margin between the best and the second choice", note: "A narrow margin is an answer that a small change of the prompt could flip.",
  draw: (width) => histograms("margins", width, {
    label: "difference of log-likelihoods (nats)",
    edges: (begin, end) => ticks(begin / 2, end / 2, 6).map((value) => ({ at: value * 2, text: tickText(value) + (value * 2 >= 24 ? "+" : "") })),
    format: (i) => `${i / 2} to ${i === 24 ? "more" : (i + 1) / 2} nats`,
  }),
});

addPlot({
  id: "lengths", title: "Lengths of answers", note: "",
  draw: (width) => histograms("lengths", width, {
    label: "characters (logarithmic)",
    edges: (begin, end, wide) => {
      const every = (end - begin) / 2 > wide / 50 ? 4 : 2;
      const found = [];
      for (let i = Math.ceil(begin / every) * every; i <= end; i += every) found.push({ at: i, text: count(Math.round(2 ** (i / 2))) });
      return found;
    },
    format: (i) => `${count(Math.ceil(2 ** (i / 2)))} to ${count(Math.ceil(2 ** ((i + 1) / 2)) - 1)} characters`,
  }),
});

addPlot({
  id: "shares", title: "Answers that are missing or cut", note: "",
  draw(width) {
    const kinds = [
      ["no answer found", (task, run) => runs[run].counts.extraction_failed?.[task.name] ?? task.plots[run]?.flags[0]],
      ["stopped by length", (task, run) => runs[run].counts.length_stopped?.[task.name] ?? task.plots[run]?.flags[1]],
      ["requests truncated", (task, run) => runs[run].counts.truncated_requests?.[task.name] ?? task.plots[run]?.flags[2], "requests"],
      ["request failed", (task, run) => runs[run].counts.unanswered_documents?.[task.name]],
    ];
    const lines = [];
    for (const task of tasks) {
      if (plotTask && task.name !== plotTask) continue;
      for (const [kind, read, of = "documents"] of kinds) {
        const marks = runs.map((run, i) => ({ run: i, n: read(task, i) || 0, of: task.plots[i]?.[of] || 0 }));
        if (marks.some((mark) => mark.n)) lines.push({ label: `${task.name}  ${kind}`, marks });
      }
    }
    if (!lines.length) return null;
    lines.length = Math.min(lines.length, MOST_LINES);
    const row = 24 + 14 * runs.length, top = 6, bottom = top + lines.length * row;
    const left = 8, right = width - 56;
    const picture = canvas(width, bottom + 42);
    const x = scale(0, 1, left, right);
    xAxis(picture, x, [0, 0.25, 0.5, 0.75, 1], { top, bottom, label: "share of documents or requests", format: percent, middle: (left + right) / 2 });
    lines.forEach((line, i) => {
      const y = top + i * row;
      picture.append(svg("text", { class: "row-label", x: left, y: y + 14 }, ...rowLabel(line.label, width - 20)));
      line.marks.forEach((mark, m) => {
        const share = Math.min(1, mark.of ? mark.n / mark.of : 0);
        const at = y + 20 + 14 * m;
        picture.append(svg("g", { class: "run-" + (mark.run % 6) }, svg("title", { text: `${line.label}, ${runs[mark.run].label}: ${count(mark.n)} of ${count(mark.of)}` }),
          mark.n ? svg("rect", { class: "bar", x: left, y: at, height: 9, width: Math.max(1, x(share) - left), rx: 1.5 }) : null,
          svg("text", { class: "tick", x: x(share) + 6, y: at + 8.5, text: mark.n ? percent(share) : "0" })));
      });
    });
    return { picture, description: lines.map((line) => line.label + ": " + line.marks.map((mark) => `${mark.n} of ${mark.of}`).join(", ")).join(". ") };
  },
});

// -- the section ------------------------------------------------------------------------------

let drawPlots = () => {};

function startPlots() {
  const frames = PLOTS.map(frame);
  const grid = byId("plot-grid");
  grid.append(...frames.map((one) => one.figure));
  const select = byId("plot-task");
  const plotted = tasks.filter((task) => task.plots.some(Boolean));
  select.append(el("option", { value: "", text: "All tasks" }), ...plotted.map((task) => el("option", { value: task.name, text: task.name })));
  byId("plot-task-field").hidden = plotted.length < 2;
  let width = 0;
  drawPlots = () => {
    byId("plots").hidden = false;
    const shown = frames.map(drawPlot);
    byId("plots").hidden = !shown.some(Boolean);
  };
  select.addEventListener("change", () => { plotTask = select.value; drawPlots(); });
  drawPlots();
  new ResizeObserver(() => {
    if (Math.abs(grid.clientWidth - width) < 2) return;
    width = grid.clientWidth;
    drawPlots();
  }).observe(grid);
}
