// Keeps the page's own files, so that the page works without a network after the first visit. The network comes first:
// a new version shows at once. The package keeps the files of bundles itself, see bundle/store.js there.

const NAME = "hamburger-edge page"; // in the Cache API
const KEPT = ["@kept"]; // the server writes the files' addresses here

addEventListener("install", (event) => {
  skipWaiting();
  event.waitUntil(keep());
});

addEventListener("activate", (event) => {
  event.waitUntil(clients.claim());
});

addEventListener("fetch", (event) => {
  const { origin, pathname } = new URL(event.request.url);
  if (event.request.method !== "GET" || origin !== location.origin || !KEPT.includes(pathname)) return;
  event.respondWith(answer(event, pathname));
});

/** Fetch every file, and forget those of another version. */
async function keep() {
  const cache = await caches.open(NAME);
  await cache.addAll(KEPT.map((address) => new Request(address, { cache: "no-cache" })));
  for (const request of await cache.keys()) {
    if (!KEPT.includes(new URL(request.url).pathname)) await cache.delete(request);
  }
}

async function answer(event, pathname) {
  const cache = await caches.open(NAME);
  try {
    const response = await fetch(event.request);
    if (response.ok) event.waitUntil(cache.put(pathname, response.clone()));
    return response;
  } catch (error) {
    const kept = await cache.match(pathname);
    if (!kept) throw error;
    return kept;
  }
}
