// What the page does beside being read: under each figure with several curves a switch for each of
// them, and the value of the nearest point while the pointer is over a drawing. A drawing says where
// its points are in data-points (fope_lab/drawing/plot.py).
"use strict";
(() => {
  const NEAR = 40; // units of the drawing between the pointer and a point at most
  const SVG = "http://www.w3.org/2000/svg";

  const value = document.createElement("div");
  value.className = "value";
  value.hidden = true;
  document.body.append(value);

  for (const figure of document.querySelectorAll("figure")) {
    const drawings = [...figure.querySelectorAll("svg[data-points]")];
    const curves = new Map(drawings.map((svg) => [svg, JSON.parse(svg.dataset.points)]));
    const labels = new Set([...curves.values()].flat().map((curve) => curve.label));
    const off = new Set();
    if (labels.size > 1) figure.querySelector("figcaption").after(switches(drawings, labels, off));
    for (const svg of drawings) follow(svg, curves.get(svg), off);
  }

  // A button for each label, which shows and hides all that belongs to the label.
  function switches(drawings, labels, off) {
    const row = document.createElement("div");
    row.className = "switches";
    row.setAttribute("role", "group");
    row.setAttribute("aria-label", "Curves that are shown");
    for (const label of labels) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        const hide = !off.has(label);
        if (hide) off.add(label);
        else off.delete(label);
        button.setAttribute("aria-pressed", String(!hide));
        for (const svg of drawings)
          for (const part of svg.querySelectorAll("[data-series]"))
            if (part.dataset.series === label) part.style.display = hide ? "none" : "";
      });
      row.append(button);
    }
    return row;
  }

  // Show the nearest point that is not switched off, with a ring around it.
  function follow(svg, curves, off) {
    const ring = document.createElementNS(SVG, "circle");
    ring.setAttribute("r", "6");
    ring.setAttribute("fill", "none");
    ring.setAttribute("stroke", "var(--ink)");
    ring.setAttribute("stroke-width", "1.5");
    ring.setAttribute("visibility", "hidden");
    svg.append(ring);
    const leave = () => {
      value.hidden = true;
      ring.setAttribute("visibility", "hidden");
    };
    const move = (event) => {
      const matrix = svg.getScreenCTM();
      if (!matrix) return;
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
      let best = null;
      for (const { label, points } of curves) {
        if (off.has(label)) continue;
        for (const [x, y, text] of points) {
          const distance = Math.hypot(x - at.x, y - at.y);
          if (distance <= NEAR && (best === null || distance < best.distance))
            best = { distance, x, y, words: `${label}: ${text}` };
        }
      }
      if (best === null) return leave();
      ring.setAttribute("cx", best.x);
      ring.setAttribute("cy", best.y);
      ring.setAttribute("visibility", "visible");
      value.textContent = best.words;
      value.hidden = false;
      const room = document.documentElement.clientWidth - value.offsetWidth - 8;
      value.style.left = `${Math.max(8, Math.min(event.clientX + 14, room))}px`;
      value.style.top = `${event.clientY + 16}px`;
    };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerdown", move);
    svg.addEventListener("pointerleave", leave);
  }
})();
