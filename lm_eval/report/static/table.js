// The table of scores: groups that fold, columns that sort, and intervals drawn in a column.

const collapsed = new Set();
let sorting = { column: null, descending: true };

/** Returns the nodes of the table as a tree, in the order of the results. */
function scoreTree() {
  const root = { children: [] };
  const path = [root];
  summary.table.rows.forEach((row, place) => {
    const node = { row, place, children: [] };
    path.length = Math.min(row.depth + 1, path.length);
    path[path.length - 1].children.push(node);
    path.push(node);
  });
  return root;
}

function sortKey(node, column) {
  if (column === "name") return node.row.alias.toLowerCase();
  const values = node.row.scores.length ? node.row.scores[0].values : [];
  if (column === "documents") return values.find(Boolean)?.n ?? -1;
  const value = values[column]?.value;
  if (typeof value === "number") return value;
  const below = node.children.map((child) => sortKey(child, column)).filter((one) => one > -Infinity);
  return below.length ? Math.max(...below) : -Infinity;
}

function sorted(nodes) {
  if (sorting.column === null) return nodes;
  const order = sorting.descending ? -1 : 1;
  return [...nodes].sort((a, b) => {
    const one = sortKey(a, sorting.column), two = sortKey(b, sorting.column);
    return one < two ? -order : one > two ? order : a.place - b.place;
  });
}

function drawTable() {
  const head = el("tr", {},
    sortHeader("Task", "name"),
    el("th", { scope: "col", text: "Metric" }),
    el("th", { scope: "col", class: "number wide-only", text: "Shots" }),
    sortHeader("Documents", "documents", "number wide-only"),
    runs.map((run, i) => sortHeader(runs.length > 1 ? run.label : "Score", i, "number", runs.length > 1 ? i : null)),
    el("th", { scope: "col", class: "interval wide-only" }, intervalAxis()),
  );
  const body = el("tbody");
  const visit = (nodes, hidden) => {
    for (const node of sorted(nodes)) {
      if (!hidden) body.append(...scoreLines(node));
      visit(node.children, hidden || collapsed.has(node.place));
    }
  };
  visit(scoreTree().children, false);
  byId("score-table").replaceChildren(el("table", { class: "scores" },
    el("caption", { class: "visually-hidden", text: "Scores of tasks and groups" }), el("thead", {}, head), body));
}

function sortHeader(label, column, className = "", run = null) {
  const active = sorting.column === column;
  const button = el("button", { type: "button", class: "sort", on: { click: () => {
    if (!active) sorting = { column, descending: column !== "name" };
    else if (sorting.descending === (column !== "name")) sorting = { column, descending: !sorting.descending };
    else sorting = { column: null, descending: true };
    drawTable();
    byId("score-table").querySelector(`[data-column="${CSS.escape(String(column))}"]`)?.focus();
  } }, "data-column": column, title: label.length > 40 ? label : null }, run === null ? null : runMark(run), inline(label, { class: "clamped" }),
    el("span", { class: "arrow", "aria-hidden": "true", text: active ? (sorting.descending ? "↓" : "↑") : "" }));
  return el("th", { scope: "col", class: className, "aria-sort": active ? (sorting.descending ? "descending" : "ascending") : "none" }, button);
}

function scoreLines(node) {
  const { row } = node;
  const lines = row.scores.length ? row.scores : [null];
  return lines.map((score, i) => el("tr", { class: (row.group ? "group" : "") + (i ? " further" : "") },
    i ? el("td", { class: "name depth-" + Math.min(row.depth, 6) }, narrowMetric(score)) : nameCell(node, narrowMetric(score)),
    el("td", { class: "metric" }, score ? metricName(score) : null),
    el("td", { class: "number wide-only", text: i ? "" : row.shots ?? "" }),
    el("td", { class: "number wide-only", text: count(score?.values.find(Boolean)?.n) }),
    runs.map((_, r) => el("td", { class: "number" }, score?.values[r] ? scoreText(score.values[r]) : null)),
    el("td", { class: "interval wide-only" }, score ? intervalCell(score) : null)));
}

/** The metric below the name of the task, on narrow screens. */
const narrowMetric = (score) => score && el("span", { class: "narrow-metric" }, metricName(score));

function nameCell(node, below) {
  const { row } = node;
  const indent = Math.min(row.depth, 6);
  const cell = el("th", { scope: "row", class: "name depth-" + indent });
  if (row.group) {
    const open = !collapsed.has(node.place);
    cell.append(el("button", { type: "button", class: "fold", "aria-expanded": String(open), "data-group": node.place, on: { click: () => {
      if (open) collapsed.add(node.place); else collapsed.delete(node.place);
      drawTable();
      byId("score-table").querySelector(`[data-group="${node.place}"]`)?.focus();
    } } }, el("span", { class: "triangle", "aria-hidden": "true" }), inline(row.alias)));
  } else if (tasks.some((task) => task.name === row.name && task.shown)) {
    cell.append(el("a", { href: "#samples", title: "Show the samples of " + row.name, on: { click: () => filterTask(row.name) } }, inline(row.alias)));
  } else cell.append(inline(row.alias));
  if (below) cell.append(below);
  return cell;
}

function metricName(score) {
  const arrow = score.higher === true ? "↑" : score.higher === false ? "↓" : "";
  return [inline(score.metric), score.filter === "none" ? null : el("span", { class: "filter" }, " ", inline(score.filter)),
    arrow ? el("span", { class: "direction", "aria-label": score.higher ? "higher is better" : "lower is better", role: "img", text: " " + arrow }) : null];
}

/** Returns how many decimals the error of a score has: not more than the score. */
const errorPlaces = (value) => value === 0 || (Math.abs(value) >= 1e-4 && Math.abs(value) < 1e9) ? Math.min(3, decimals(value)) : null;

function scoreText(value) {
  const half = value.low !== null && value.high !== null ? (value.high - value.low) / 2 : null;
  return [el("span", { class: "score", text: number(value.value) }),
    half === null ? null : el("span", { class: "error", text: " ± " + number(half, errorPlaces(value.value)),
      title: `${number(value.low)} to ${number(value.high)}` + (value.stderr === null ? "" : `, standard error ${number(value.stderr)}`) })];
}

// -- intervals in the table -------------------------------------------------------------------

const INTERVAL_WIDTH = 220;
/** Whether a score is a share of 1, such as an accuracy, and can be drawn on the axis from 0 to 1. */
const isShare = (score) => score.higher !== false && score.values.every((value) => value === null || (typeof value.value === "number" && value.value >= 0 && value.value <= 1));

function intervalAxis() {
  const picture = svg("svg", { width: INTERVAL_WIDTH, height: 16, class: "axis", "aria-hidden": "true" });
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    picture.append(svg("text", { x: 6 + tick * (INTERVAL_WIDTH - 12), y: 12, "text-anchor": "middle", text: tick === 0 || tick === 1 ? String(tick) : tick.toString().slice(1) }));
  }
  return picture;
}

function intervalCell(score) {
  if (!isShare(score)) return null;
  const step = runs.length > 4 ? 4 : 6;
  const height = Math.max(18, 10 + step * runs.length);
  const x = (value) => 6 + Math.min(1, Math.max(0, value)) * (INTERVAL_WIDTH - 12);
  const picture = svg("svg", { width: INTERVAL_WIDTH, height, class: "interval-plot", "aria-hidden": "true" });
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) picture.append(svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 0, y2: height }));
  score.values.forEach((value, run) => {
    if (!value) return;
    const y = height / 2 + (run - (runs.length - 1) / 2) * step;
    const mark = svg("g", { class: "run-" + (run % 6) });
    if (value.low !== null) mark.append(svg("line", { class: "whisker", x1: x(value.low), x2: x(value.high), y1: y, y2: y }));
    mark.append(marker(run, x(value.value), y, runs.length > 4 ? 2.5 : 3.5));
    picture.append(mark);
  });
  return picture;
}
