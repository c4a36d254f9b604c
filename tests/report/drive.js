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

    const table = all("#scales-table, #variants-table, #ranking-table, #cells-table, #questions-table").find((one) =>
      one.tBodies[0].rows.length > 1);
    const has_results = document.querySelector("#scales, #variants, #cells, #sensitivity, #questions") !== null;
    check("a page of results has a table to sort", !has_results || table !== undefined);
    if (table) {
      table.closest("details")?.setAttribute("open", "");
      // A column of numbers, where the table has one; a row without stands first.
      const value = (cell) => parseFloat(cell.dataset.value ?? cell.textContent);
      const first_row = table.tBodies[0].rows[0];
      const at = Math.max(1, [...first_row.cells].findIndex((cell, i) => i > 0 && !Number.isNaN(value(cell)) && !cell.querySelector("svg")));
      const column = () => [...table.tBodies[0].rows].map((row) => value(row.cells[at]));
      const button = all("thead button", table)[at];
      check("buttons take the focus", (button.focus(), document.activeElement === button));
      button.click();
      const up = column();
      check("a column sorts upwards", up.every((value, i) => i === 0 || !(up[i - 1] > value)));
      check("and says so", all("th", table)[at].getAttribute("aria-sort") === "ascending");
      button.click();
      const down = column();
      check("and downwards", down.every((value, i) => i === 0 || !(down[i - 1] < value)));

      const rows = table.tBodies[0].rows;
      const first = [...rows].find((row) => row.tabIndex === 0);
      first.focus();
      press(first, "Home");
      press(document.activeElement, "ArrowDown");
      check("arrows move over rows", document.activeElement === rows[1]);
      if (rows[1].querySelector("a")) {
        press(rows[1], "Enter");
        await pause();
        const number = rows[1].cells[0].textContent;
        check("Enter opens the row's layer", document.getElementById(`layer-${number}`).open);
      }
    }

    for (const choosable of all("table").filter((one) => one.querySelector('[data-column="choice"]'))) {
      const tools = choosable.closest(".scroll").previousElementSibling;
      const lists = all("select", tools);
      const shown = () => [...choosable.tBodies[0].rows].filter((row) => !row.hidden);
      const all_rows = shown().length;
      check("every list has a name", lists.length > 0 && lists.every((list) => list.labels[0].textContent.trim() !== ""));
      const list = lists[0];
      list.focus();
      list.selectedIndex = 1;
      list.dispatchEvent(new Event("change"));
      check("a choice hides other rows", shown().length > 0 && shown().length < all_rows &&
        shown().every((row) => [...row.cells].some((cell) => cell.textContent === list.value)));
      check("and says how many are left", tools.querySelector("output").textContent === `${shown().length} of ${all_rows} rows`);
      check("one row that is shown takes the focus", shown().filter((row) => row.tabIndex === 0).length === 1);
      const marks = all("svg [data-key]");
      const keys = new Set(shown().map((row) => row.dataset.key));
      check("marks of hidden rows fade", marks.every((mark) => mark.classList.contains("faded") !== keys.has(mark.dataset.key)));
      if (marks.length > 0) {
        const row = shown().find((one) => marks.some((mark) => mark.dataset.key === one.dataset.key));
        row.tabIndex = 0;
        row.focus();
        await pause();
        const picked = all("svg .picked");
        check("the row with the focus is shown in the drawing", picked.length === 1 && picked[0].dataset.key === row.dataset.key);
      }
      tools.querySelector("button").click();
      check("all rows come back", shown().length === all_rows);
    }

    for (const mark of all("mark"))
      check("a difference is told in words", mark.textContent.startsWith("first difference: ") && mark.textContent.length > 18);

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
