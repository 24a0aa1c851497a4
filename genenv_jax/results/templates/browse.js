// Filters and pages of the lists in a page.  Without it they are plain lists.
"use strict";
const SHOWN = 20; // items at a time

function setUp(browser) {
  const form = browser.querySelector("form");
  const count = form.querySelector("output");
  const controls = [...form.querySelectorAll("[data-of]")];
  const items = [...browser.querySelectorAll(".item")].map((item) => ({
    item,
    rows: [...item.querySelectorAll("[data-row]")],
  }));
  let found = items;
  let page = 0;

  function fits(element) {
    return controls.every((control) => {
      const has = element.dataset[control.dataset.of];
      if (control.value === "" || has === undefined) return true;
      if (control.dataset.bound === "low") return has !== "" && Number(has) >= Number(control.value);
      if (control.dataset.bound === "high") return has !== "" && Number(has) <= Number(control.value);
      return has === control.value;
    });
  }

  function filter() {
    page = 0;
    found = items.filter(({ item, rows }) => {
      for (const row of rows) row.hidden = !fits(row);
      return fits(item) && (rows.length === 0 || rows.some((row) => !row.hidden));
    });
    show();
  }

  function show() {
    const pages = Math.max(1, Math.ceil(found.length / SHOWN));
    page = Math.min(Math.max(page, 0), pages - 1);
    const shown = new Set(found.slice(page * SHOWN, (page + 1) * SHOWN));
    for (const one of items) one.item.hidden = !shown.has(one);
    count.textContent = `${found.length} of ${items.length}, page ${page + 1} of ${pages}`;
  }

  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const control of controls) control.addEventListener("change", filter);
  for (const button of form.querySelectorAll("[data-step]")) {
    button.addEventListener("click", () => {
      page += Number(button.dataset.step);
      show();
      browser.scrollIntoView();
    });
  }
  filter();
}

for (const link of document.querySelectorAll("[data-set]")) {
  link.addEventListener("click", () => {
    const control = document.querySelector(`select[data-of="${link.dataset.set}"]`);
    control.value = link.dataset.to;
    control.dispatchEvent(new Event("change"));
  });
}

document.querySelectorAll(".browser").forEach(setUp);
