/** Line icons on a 24-unit grid, and the page's mark. Decorative: what they mean is said by their button. */

import type { JSX } from "preact";

const PATHS = {
  send: "M12 20V4M5 11l7-7 7 7",
  stop: "M7 7h10v10H7z",
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h10",
  settings: "M4 7h9M19 7h1M4 17h1M11 17h9M16 4.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5zM8 14.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5z",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M10 9h8a2 2 0 0 1 2 2v8a2 2 0 0 1-2 2h-8a2 2 0 0 1-2-2v-8a2 2 0 0 1 2-2zM5 15a2 2 0 0 1-2-2V5a2 2 0 0 1 2-2h8a2 2 0 0 1 2 2",
  check: "M5 12.5l4.5 4.5L19 7.5",
  again: "M4 11a8 8 0 0 1 14-4.5L20 9M20 4v5h-5M20 13a8 8 0 0 1-14 4.5L4 15M4 20v-5h5",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
  down: "M12 5v14M5 12l7 7 7-7",
  sun: "M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  alert: "M12 3.5l9.5 16.5h-19zM12 10v4.5M12 17.2v.3",
  info: "M12 3a9 9 0 1 1 0 18 9 9 0 0 1 0-18zM12 11v5M12 7.8v.2",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg class={`icon icon-${name}`} viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** A speech bubble with two eyes. */
export function Mark({ size, awake = true }: { size: "small" | "large"; awake?: boolean }): JSX.Element {
  return (
    <svg class={`mark mark-${size}${awake ? "" : " mark-asleep"}`} viewBox="0 0 48 48" aria-hidden="true">
      <path class="mark-bubble" d="M24 5c11.6 0 20 7.600 20 17.600S35.600 40.200 24 40.200c-1.900 0-3.700-.2-5.400-.6L9.800 43.600c-.9.4-1.800-.4-1.600-1.300l1.200-6.100C6 33 4 28.300 4 22.600 4 12.600 12.400 5 24 5z" />
      <rect class="mark-eye" x="16" y="17.500" width="4.500" height="10" rx="2.250" />
      <rect class="mark-eye" x="27.500" y="17.500" width="4.500" height="10" rx="2.250" />
    </svg>
  );
}
