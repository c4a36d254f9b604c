// Run by browser.sh beside a page: shows it in frames of several widths and measures what a reader would see there. Writes "ok" or "FAILED" lines
// into its own document. `page` is the page's text, `widths` the frames' widths, `doubts` whether the checks doubt themselves, too.
(async () => {
  "use strict";
  const lines = [];
  const all = (selector, from) => [...from.querySelectorAll(selector)];
  const shown = (box) => box.width > 0 && box.height > 0;
  const words = (node) => (node.textContent || "").trim().slice(0, 40);

  const load = (width) => new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.width = width;
    frame.height = 900;
    frame.style.border = "0";
    frame.onload = () => done(frame);
    frame.srcdoc = page;
    document.body.append(frame);
  });

  const inside = (inner, outer, room = 1.5) => inner.left >= outer.left - room && inner.right <= outer.right + room &&
    inner.top >= outer.top - room && inner.bottom <= outer.bottom + room;
  const drawings = (doc) => all("svg", doc).filter((svg) => !svg.classList.contains("patterns") && shown(svg.getBoundingClientRect()));
  const frame_of = (svg) => svg.closest(".framed") ?? svg;

  /** Text and marks lie inside their drawing. */
  const outside = (doc) => drawings(doc).flatMap((svg) => {
    const frame = frame_of(svg).getBoundingClientRect();
    return all("text, .mark", svg).filter((part) => shown(part.getBoundingClientRect()) && !inside(part.getBoundingClientRect(), frame))
      .map((part) => `outside: ${svg.id || svg.getAttribute("class")}: ${words(part) || part.getAttribute("class")}`);
  });

  /** No text of a drawing covers another. */
  const overlaps = (doc) => [...new Set(drawings(doc).map(frame_of))].flatMap((frame) => {
    const texts = all("text", frame).filter((text) => words(text) !== "")
      .map((text) => ({ text, box: text.getBoundingClientRect() })).filter(({ box }) => shown(box));
    return texts.flatMap(({ text, box }, i) => texts.slice(i + 1).filter(({ box: other }) =>
      Math.min(box.right, other.right) - Math.max(box.left, other.left) > 2 &&
      Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top) > 4)
      .map(({ text: other }) => `overlap: "${words(text)}" and "${words(other)}"`));
  });

  const cut_tiles = (doc) => all(".tiles li", doc).filter((tile) => tile.scrollWidth > tile.clientWidth + 1)
    .map((tile) => `tile: ${words(tile)}`);

  const too_wide = (doc) => doc.documentElement.scrollWidth > doc.documentElement.clientWidth + 1 ? ["body: scrolls sideways"] : [];

  const channels = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = (colour) => channels(colour).slice(0, 3).map((c) => (c /= 255, c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const background = (element, win) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = win.getComputedStyle(one).backgroundColor;
      if ((channels(colour)[3] ?? 1) > 0.5) return colour;
    }
    return win.getComputedStyle(win.document.body).backgroundColor;
  };
  const contrast_of = (one, other) => {
    const [ink, ground] = [luminance(one), luminance(other)];
    return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
  };
  /** The colour of the cell of a heat map under a text of it: cells are strokes of paths. */
  const cell_under = (text, win) => {
    const at = new win.DOMPoint(Number(text.getAttribute("x")), Number(text.getAttribute("y")) - 4);
    const cell = all("path[class^=level]", text.closest("svg")).find((path) => path.isPointInStroke(at));
    return cell ? win.getComputedStyle(cell).stroke : null;
  };
  /** Text stands out from its ground by 4.5, as WCAG 2 asks; in heat maps the ground is the cell. */
  const faint = (doc, win) => {
    const found = new Set();
    const walker = doc.createTreeWalker(doc.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const parent = node.parentElement;
      if (!node.data.trim() || parent.closest("script, style, title, desc, .hidden, .skip, option")) continue;
      if (!shown(parent.getBoundingClientRect())) continue;
      const style = win.getComputedStyle(parent);
      const is_digit = parent.matches(".on-light, .on-dark");
      const ground = is_digit ? cell_under(parent, win) : background(parent, win);
      if (!ground) found.add(`contrast: no cell under "${node.data.trim()}"`);
      const contrast = contrast_of(parent.closest("svg") ? style.fill : style.color, ground ?? "rgb(0, 0, 0)");
      if (contrast < 4.49) found.add(`contrast: ${contrast.toFixed(2)} of "${node.data.trim().slice(0, 30)}"`);
    }
    return [...found];
  };

  /** Where a chart scrolls, the numbers of its axis stay. */
  const moving_axes = (doc) => all(".framed", doc).flatMap((frame) => {
    const region = frame.closest(".scroll");
    const room = region.scrollWidth - region.clientWidth;
    if (room < 40) return [];
    region.scrollLeft = room;
    const moved = Math.abs(frame.querySelector(".pane").getBoundingClientRect().left - region.getBoundingClientRect().left);
    region.scrollLeft = 0;
    return moved > 2 ? [`axis: moves by ${moved.toFixed(0)}`] : [];
  });

  const problems = (frame) => {
    const doc = frame.contentDocument, win = frame.contentWindow;
    return [...too_wide(doc), ...cut_tiles(doc), ...outside(doc), ...overlaps(doc), ...moving_axes(doc), ...faint(doc, win)];
  };

  const part = (doc, selector) => {
    const found = all(selector, doc).find((one) => shown(one.getBoundingClientRect()));
    if (!found) throw new Error(`the page has no ${selector} to break`);
    return found;
  };
  const faults = {
    body: (doc) => { const wide = doc.createElement("div"); wide.style.width = "3000px"; wide.textContent = "wide"; doc.body.append(wide); },
    tile: (doc) => { const strong = part(doc, ".tiles strong"); strong.style.whiteSpace = "nowrap"; strong.textContent = "wide ".repeat(40); },
    outside: (doc) => part(doc, ".framed .chart text").setAttribute("x", "-90"),
    "outside ": (doc) => { const mark = part(doc, "circle.mark"); mark.setAttribute("cy", "99999"); },
    overlap: (doc) => {
      const [one, other] = all(".framed .chart text", doc);
      for (const name of ["x", "y", "text-anchor"]) other.setAttribute(name, one.getAttribute(name));
    },
    axis: (doc) => { part(doc, ".pane").style.position = "static"; },
    contrast: (doc) => { part(doc, "h2").style.color = "#888"; part(doc, "h2").style.background = "#999"; },
    "contrast ": (doc) => { part(doc, ".chart text").style.fill = "#808080"; doc.body.style.background = "#7a7a7a"; },
    "contrast  ": (doc) => { part(doc, ".heat .on-light, .heat .on-dark").style.fill = "#757575"; },
  };

  try {
    for (const width of widths) {
      const frame = await load(width);
      const found = problems(frame);
      lines.push(found.length === 0 ? `ok at ${width}` : `FAILED at ${width}: ${found.length}: ${found.slice(0, 6).join("; ")}`);
      frame.remove();
    }
    for (const [kind, break_it] of doubts ? Object.entries(faults) : []) {
      const frame = await load(widths[0]);
      break_it(frame.contentDocument);
      const found = problems(frame).some((one) => one.startsWith(kind.trim()));
      lines.push(`${found ? "ok" : "FAILED"} an injected fault is found: ${kind}`);
      frame.remove();
    }
  } catch (error) {
    lines.push(`FAILED ${error}`);
  }
  const out = document.createElement("pre");
  out.id = "driven";
  out.textContent = lines.join("\n") + "\ndone";
  document.body.append(out);
})();
