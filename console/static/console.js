// Live updates: the server sends the content of <main> when it has changed; only what differs is replaced.
"use strict";

const SKIPPED = new Set(["open", "value"]);
const RETRY_MILLISECONDS = 10000;
// For the click that leaves a form: the page stays as it is until that has ended.
const CLICK_MILLISECONDS = 500;

function key(node) {
  return node.nodeType === Node.ELEMENT_NODE && node.id ? node.id : null;
}

function morphAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !SKIPPED.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !SKIPPED.has(name)) old.setAttribute(name, value);
  }
}

function morphChildren(old, fresh) {
  const byId = new Map([...old.childNodes].filter(key).map((node) => [key(node), node]));
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const known = key(wanted) ? byId.get(key(wanted)) : at && !key(at) ? at : null;
    if (known && known.nodeName === wanted.nodeName) {
      if (known !== at) old.insertBefore(known, at);
      else at = at.nextSibling;
      morph(known, wanted);
    } else {
      old.insertBefore(document.importNode(wanted, true), at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  // What the user is writing stays.
  if (old === document.activeElement && old.matches("input, select, textarea")) return;
  morphAttributes(old, fresh);
  morphChildren(old, fresh);
}

// A form that is being filled in stays as it is.
function isFilledIn() {
  const focused = document.activeElement;
  return Boolean(focused && focused.closest("main form"));
}

// Load the page again once the server answers: until then an old page is better than none.
function reload(milliseconds) {
  setTimeout(async () => {
    const answer = await fetch(location.href).catch(() => null);
    const isUnavailable = !answer || answer.status >= 500 || answer.status === 429;
    const hasEnded = !isUnavailable && (answer.redirected || !answer.ok);
    if (isUnavailable || (isFilledIn() && !hasEnded)) reload(RETRY_MILLISECONDS);
    else location.reload();
  }, milliseconds);
}

function follow(main) {
  const stream = new EventSource(`/events?path=${encodeURIComponent(location.pathname + location.search)}`);
  // The last page that is not shown yet, and the last time: while a form is being filled in, both wait.
  let page = null;
  let time = null;
  function show() {
    if (page !== null && isFilledIn()) return;
    if (page !== null) morph(main, new DOMParser().parseFromString(`<main id="main" tabindex="-1">${page}</main>`, "text/html").body.firstChild);
    if (time !== null) document.getElementById("time").textContent = time;
    page = null;
  }
  stream.addEventListener("page", (event) => {
    page = event.data;
    show();
  });
  stream.addEventListener("time", (event) => {
    time = event.data;
    show();
  });
  document.addEventListener("focusout", () => setTimeout(show, CLICK_MILLISECONDS));
  // The rights ended, or the session did: the server decides what this page is now.
  stream.addEventListener("reload", () => {
    stream.close();
    reload(0);
  });
  // A browser connects again by itself unless it is refused; without updates the page would look current for ever.
  stream.addEventListener("error", () => {
    if (stream.readyState === EventSource.CLOSED) reload(RETRY_MILLISECONDS);
  });
  addEventListener("pagehide", () => stream.close());
}

const main = document.getElementById("main");
if (main && document.getElementById("time")) follow(main);

for (const select of document.querySelectorAll(".controls select")) {
  select.addEventListener("change", () => select.form.requestSubmit());
}
