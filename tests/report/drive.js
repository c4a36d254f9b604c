// Appended by browser.sh to a copy of a page: uses it as a reader would, and writes "ok" or "FAILED" lines into the page.
(async () => {
  "use strict";
  const lines = [];
  const check = (name, holds) => lines.push(`${holds ? "ok" : "FAILED"} ${name}`);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const press = (target, key) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const pause = () => new Promise((done) => setTimeout(done, 50));
  try {
    check("the body does not scroll sideways", document.documentElement.scrollWidth <= innerWidth);
    check("every drawing has a name and a size", all('svg[role="img"]').every((svg) =>
      svg.getAttribute("aria-labelledby").split(" ").every((id) => document.getElementById(id)?.textContent) &&
      svg.viewBox.baseVal.width > 0));
    check("no drawing has a place that is no number", all("svg *").every((part) =>
      [...part.attributes].every((one) => !/NaN|undefined|[iI]nfinity/.test(one.value))));
    check("regions that scroll take the focus", all(".scroll").every((region) => region.tabIndex === 0));

    const table = document.getElementById("scales-table");
    table.closest("details")?.setAttribute("open", "");
    const column = (at) => [...table.tBodies[0].rows].map((row) => parseFloat(row.cells[at].textContent));
    const button = all("thead button", table)[3];
    button.click();
    const up = column(3);
    check("a column sorts upwards", up.every((value, i) => i === 0 || !(up[i - 1] > value)));
    check("and says so", all("th", table)[3].getAttribute("aria-sort") === "ascending");
    button.click();
    const down = column(3);
    check("and downwards", down.every((value, i) => i === 0 || !(down[i - 1] < value)));

    const rows = table.tBodies[0].rows;
    const first = [...rows].find((row) => row.tabIndex === 0);
    first.focus();
    press(first, "Home");
    press(document.activeElement, "ArrowDown");
    check("arrows move over rows", document.activeElement === rows[1]);
    press(rows[1], "Enter");
    await pause();
    const number = rows[1].cells[0].textContent;
    check("Enter opens the row's layer", document.getElementById(`layer-${number}`).open);

    const map = document.querySelector("[data-numbers]");
    if (map) {
      press(map, "ArrowRight");
      const cell = document.getElementById(map.dataset.numbers).tBodies[0].rows[0].cells[2].textContent;
      check("arrows read a heat map", map.previousElementSibling.textContent.endsWith(`head 1: ${cell}`));
      check("and mark the cell", all(".cursor", map).length === 1);
      const drawing = map.querySelector("svg");
      const box = drawing.getBoundingClientRect();
      drawing.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + 40, clientY: box.top + 30, bubbles: true }));
      check("so does the pointer", map.previousElementSibling.textContent.includes("head 0: "));
    }
    const tools = all(".tools button");
    tools[0]?.click();
    check("all layers open", all("details.layer").every((layer) => layer.open));
    tools[1]?.click();
    check("and close", all("details.layer").every((layer) => !layer.open));
  } catch (error) {
    lines.push(`FAILED ${error}`);
  }
  const out = document.createElement("pre");
  out.id = "driven";
  out.textContent = lines.join("\n") + "\ndone";
  document.body.append(out);
})();
