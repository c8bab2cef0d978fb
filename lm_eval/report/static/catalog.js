// The list of the runs of a folder, on the page that `lm-eval view` serves.

function startCatalog() {
  if (summary.home) byId("sections").prepend(el("a", { href: "../../", text: "← Runs" }));
  if (!summary.catalog) return;
  byId("title").replaceChildren(inline(summary.title));
  byId("subtitle").textContent = plural(summary.catalog.length, "run");
  const chosen = new Set();
  const open = el("a", { class: "side-link", text: "Open side by side", hidden: true });
  const rows = summary.catalog.map((run) => {
    const box = el("input", { type: "checkbox", "aria-label": "Choose " + run.model });
    box.addEventListener("change", () => {
      if (box.checked) chosen.add(run.id); else chosen.delete(run.id);
      open.hidden = chosen.size < 2;
      open.setAttribute("href", `run/${[...chosen].join("+")}/`);
    });
    return el("tr", {}, el("td", {}, box), el("th", { scope: "row", class: "name" }, el("a", { href: `run/${run.id}/` }, inline(run.model))), el("td", {}, inline(run.what)),
      el("td", { class: "wide-only" }, inline(run.place)), el("td", { class: "wide-only", text: run.started }), el("td", { "data-state": run.id, text: run.state }));
  });
  const head = [["", ""], ["Model", ""], ["Tasks", ""], ["Folder", "wide-only"], ["Started", "wide-only"], ["State", ""]];
  byId("notes").append(rows.length ? el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Runs" },
    el("table", { class: "scores runs-table" }, el("thead", {}, el("tr", {}, head.map(([text, name]) => text ? el("th", { scope: "col", class: name, text }) : el("td")))), el("tbody", {}, rows)))
    : el("p", { class: "note", text: "There are no runs in this folder yet. The page shows them when they begin." }), open);
}
