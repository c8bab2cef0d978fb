// Keyboard shortcuts and the dialog that lists them.

const SHORTCUTS = [
  [["j", "k"], "next, previous sample"],
  [["↓", "↑"], "the same, in the list"],
  [["→", "←"], "next, previous sample while reading one"],
  [["Home", "End"], "first, last sample of the list"],
  [["Enter"], "read the chosen sample"],
  [["/"], "search"],
  [["Esc"], "leave the search, close a sample or this help"],
  [["t"], "light, dark or automatic colors"],
  [["?"], "this help"],
];

function startKeys() {
  const help = byId("help");
  help.append(el("h2", { id: "help-heading", text: "Keyboard" }),
    el("dl", { class: "keys" }, SHORTCUTS.map(([keys, text]) => [el("dt", {}, keys.map((key) => el("kbd", { text: key }))), el("dd", { text })])),
    el("form", { method: "dialog" }, el("button", { class: "close", text: "Close" })));
  byId("help-button").addEventListener("click", () => help.showModal());
  document.addEventListener("keydown", onKey);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest("input, select, textarea");
  const help = byId("help");
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (!help.open) closeIfReading();
    return;
  }
  if (typing && event.target.type !== "radio") return;
  if (help.open) { if (event.key === "?") { help.close(); event.preventDefault(); } return; }
  if (act(event)) event.preventDefault();
}

function closeIfReading() {
  if (document.body.classList.contains("reading")) closeDetail();
}

function act(event) {
  const list = byId("list"), detail = byId("detail");
  const inList = document.activeElement === list, inDetail = detail.contains(document.activeElement);
  switch (event.key) {
    case "j": step(1); return true;
    case "k": step(-1); return true;
    case "ArrowDown": if (inList) step(1); return inList;
    case "ArrowUp": if (inList) step(-1); return inList;
    case "ArrowRight": if (inList || inDetail) step(1); return inList || inDetail;
    case "ArrowLeft": if (inList || inDetail) step(-1); return inList || inDetail;
    case "Home": if (inList && listed.length) select(listed[0]); return inList;
    case "End": if (inList && listed.length) select(listed[listed.length - 1]); return inList;
    case "Enter": if (inList) { document.body.classList.add("reading"); detail.focus(); } return inList;
    case "/": if (!fields.query) return false; fields.query.focus(); fields.query.select(); byId("samples").scrollIntoView(); return true;
    case "t": nextTheme(); return true;
    case "?": byId("help").showModal(); return true;
  }
  return false;
}
