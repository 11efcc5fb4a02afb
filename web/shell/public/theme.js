// Before anything is drawn: the theme that was chosen, so that the page does not flash in the other one.
{
  let theme = "system";
  try {
    const folder = location.pathname.slice(0, location.pathname.lastIndexOf("/") + 1);
    const app = document.currentScript?.getAttribute("data-app");
    theme = JSON.parse(localStorage.getItem(`${app}:${folder}:settings`) || "{}").theme || theme;
  } catch {
    // Storage is blocked or holds something else: the system's theme it is.
  }
  if (theme !== "light" && theme !== "dark") {
    theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }
  document.documentElement.dataset["theme"] = theme;
}
