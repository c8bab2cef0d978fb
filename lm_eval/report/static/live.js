// Progress of a run under way, on the page that `lm-eval view` serves.

async function startLive() {
  const live = summary.live;
  if (!live) return;
  const place = byId("live");
  place.hidden = false;
  for (;;) {
    let state;
    try {
      const reply = await fetch(live.progress, { cache: "no-store" });
      if (!reply.ok) throw new Error(String(reply.status));
      state = await reply.json();
    } catch {
      place.replaceChildren(el("p", { class: "warning", text: "The viewer does not answer any more. Start it again with lm-eval view." }));
      return;
    }
    if (state.changed !== live.changed) { location.reload(); return; }
    drawProgress(place, state);
    if (!state.runs.some((run) => run.state === "running")) {
      if (live.running) { location.reload(); return; }
    }
    await new Promise((resolve) => setTimeout(resolve, live.seconds * 1000));
  }
}

function drawProgress(place, state) {
  place.replaceChildren(...state.runs.filter((run) => run.state !== "finished" || summary.runs.length === 0).map((run) => {
    const share = run.requests ? run.answers / run.requests : 0;
    return el("section", { class: "progress", "aria-label": "Progress of " + run.model },
      el("p", { class: "progress-head" }, inline(run.model, { class: "run-name" }), el("span", { class: "state " + run.state, text: run.state }),
        el("span", { class: "progress-count", text: `${count(run.answers)} of ${count(run.requests)} answers (${percent(share)})` })),
      meter(share, run.model),
      el("ul", { class: "progress-tasks" }, run.tasks.map((task) => el("li", {}, inline(task.name), meter(task.requests ? task.answers / task.requests : 0, task.name), el("span", { class: "progress-count", text: `${count(task.answers)} / ${count(task.requests)}` })))));
  }));
}

function meter(share, label) {
  const inside = el("span", { class: "meter-fill" });
  inside.style.width = 100 * Math.min(1, share) + "%";
  return el("span", { class: "meter", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(100 * share) }, inside);
}
