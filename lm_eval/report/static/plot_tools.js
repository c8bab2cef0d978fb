// What plots share: scales, axes, marks of runs, and the frame with title and description.
//
// To add a plot, call `addPlot({ id, title, note, wide, draw })`. `draw(width)` returns
// `{ picture, description }`, or null if there is nothing to show; it is called again when the
// width or the chosen task changes.

const PLOTS = [];
const addPlot = (plot) => PLOTS.push(plot);

/** Returns a function from values to positions. */
function scale(from, to, start, end) {
  const span = to - from || 1;
  return (value) => start + ((value - from) / span) * (end - start);
}

/** Returns about `wanted` round values between two numbers. */
function ticks(from, to, wanted = 5) {
  const span = to - from || 1;
  const power = 10 ** Math.floor(Math.log10(span / wanted));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => span / one <= wanted) ?? 10 * power;
  const found = [];
  for (let value = Math.ceil(from / step - 1e-9) * step; value <= to + step * 1e-9 && found.length < 50; value += step) found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

const tickText = (value) => String(Number(value.toPrecision(6))).replace(/^-/, "−");

/** Returns the mark of a run: a shape besides the color, so that both tell runs apart. */
function marker(run, x, y, size = 4.5) {
  const shape = run % 4;
  if (shape === 0) return svg("circle", { class: "mark", cx: x, cy: y, r: size });
  const points = shape === 1 ? [[-1, -1], [1, -1], [1, 1], [-1, 1]].map(([a, b]) => [a * 0.9, b * 0.9])
    : shape === 2 ? [[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]] : [[0, -1.25], [1.15, 0.85], [-1.15, 0.85]];
  return svg("polygon", { class: "mark", points: points.map(([a, b]) => `${x + a * size},${y + b * size}`).join(" ") });
}

/** Returns a small picture of the mark of a run, for legends and headings. */
function runMark(run) {
  return svg("svg", { width: 12, height: 12, class: "run-mark run-" + (run % 6), "aria-hidden": "true" }, marker(run, 6, 6, 4));
}

/** Draws a horizontal axis with its label below, and grid lines up to `top`. */
function xAxis(picture, x, values, { top, bottom, label, format = tickText, middle, left, right }) {
  for (const value of values) {
    picture.append(svg("line", { class: "grid", x1: x(value), x2: x(value), y1: top, y2: bottom }),
      svg("text", { class: "tick", x: x(value), y: bottom + 16, "text-anchor": "middle", text: format(value) }));
  }
  picture.append(svg("line", { class: "base", x1: left ?? x(values[0]), x2: right ?? x(values[values.length - 1]), y1: bottom, y2: bottom }));
  picture.append(svg("text", { class: "label", x: middle, y: bottom + 34, "text-anchor": "middle", text: label }));
}

/** Draws a vertical axis with its label above the plot, and grid lines from `left` to `right`. */
function yAxis(picture, y, values, { left, right, top, label, format = tickText }) {
  for (const value of values) {
    picture.append(svg("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end", text: format(value) }));
  }
  picture.append(svg("text", { class: "label", x: 0, y: top - 14, "text-anchor": "start", text: label }));
}

const ruler = document.createElement("canvas").getContext("2d");

/** Returns the width of a label in pixels, at most: as if it were bold. */
function textWidth(text) {
  ruler.font = `640 13px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

/** Returns a text that fits into so many pixels, cut in the middle. */
function fitted(text, pixels) {
  const plain = String(text).slice(0, 1000).replace(HIDDEN, "�");
  const width = textWidth(plain);
  if (width <= pixels) return plain;
  const most = Math.max(6, Math.floor(plain.length * pixels / width));
  return plain.slice(0, Math.ceil(most * 0.6) - 1) + "…" + plain.slice(plain.length - Math.floor(most * 0.4));
}

/** Returns an SVG element of a size, for `draw`. */
const canvas = (width, height) => svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });

function frame(plot) {
  const body = el("div", { class: "plot-body" });
  const figure = el("figure", { class: "plot" + (plot.wide ? " wide-plot" : ""), id: "plot-" + plot.id },
    el("figcaption", {}, el("h3", { text: plot.title }), plot.note ? el("p", { class: "note", text: plot.note }) : null), body);
  return { figure, body, plot };
}

/** Draws a plot into its frame; hides the frame if there is nothing to show. */
function drawPlot({ figure, body, plot }) {
  figure.hidden = false;
  const width = Math.floor(body.clientWidth || 320);
  let drawn;
  try {
    drawn = plot.draw(width);
  } catch (error) { // the rest of the page does not depend on it
    console.error(error);
    body.replaceChildren(el("p", { class: "warning", text: "This plot cannot be drawn from these numbers." }));
    return true;
  }
  figure.hidden = !drawn;
  if (!drawn) return false;
  const { picture, description, legend, extra } = drawn;
  const id = "plot-" + plot.id;
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-labelledby", `${id}-title ${id}-description`);
  picture.prepend(svg("title", { id: id + "-title", text: plot.title }), svg("desc", { id: id + "-description", text: description }));
  body.replaceChildren(...[legend, picture, extra].flat().filter(Boolean));
  return true;
}
