/** All tabs share the cookie of one session. */
const KEY = "proctor.session-changed";

/** Somebody has signed in or out here: other tabs must not go on with what the one before could read. */
export function tellOtherTabs() {
  try {
    localStorage.setItem(KEY, String(Date.now()));
  } catch {
    // Nothing is kept there: each tab finds out by its next call.
  }
}

/** Loads the page anew when the session is another one, or when the browser brings a page back from before. */
export function watchOtherTabs(reload = () => location.reload()): () => void {
  const onStorage = (event: StorageEvent) => {
    if (event.key === KEY) reload();
  };
  const onShow = (event: PageTransitionEvent) => {
    if (event.persisted) reload();
  };
  window.addEventListener("storage", onStorage);
  window.addEventListener("pageshow", onShow);
  return () => {
    window.removeEventListener("storage", onStorage);
    window.removeEventListener("pageshow", onShow);
  };
}
