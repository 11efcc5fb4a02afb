/** Line icons on a 24-unit grid. Decorative: what they mean is said by their button. */

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
  upload: "M12 16V4M6.500 9.500L12 4l5.500 5.500M4 15v4a1 1 0 0 0 1 1h14a1 1 0 0 0 1-1v-4",
  download: "M12 4v12M6.500 10.500L12 16l5.500-5.500M4 16v3a1 1 0 0 0 1 1h14a1 1 0 0 0 1-1v-3",
  camera: "M4 8h3.500l1.500-2.500h6L16.500 8H20v11H4zM12 10a3.500 3.500 0 1 1 0 7 3.500 3.500 0 0 1 0-7z",
  flip: "M4 12a8 8 0 0 1 13.500-5.800L20 8.500M20 4v4.500h-4.500M20 12a8 8 0 0 1-13.500 5.800L4 15.500M4 20v-4.500h4.500",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 2.500-2.500L20 17M15.500 8.500v.1",
  search: "M10.500 4a6.500 6.500 0 1 1 0 13 6.500 6.500 0 0 1 0-13zM15.500 15.500L20 20",
  file: "M6 3.500h8l4 4V20.500H6zM14 3.500v4h4",
  play: "M8 5.500v13l10.500-6.500z",
  pause: "M8.500 6v12M15.500 6v12",
  shuffle:
    "M4 7h3.500c5 0 4 10 9 10H20M17 14l3 3-3 3M4 17h3.500c1.500 0 2.500-.9 3.200-2.100M13.300 9.100C14 7.900 15 7 16.500 7H20M17 4l3 3-3 3",
  chip: "M7 7h10v10H7zM10 7V4M14 7V4M10 20v-3M14 20v-3M7 10H4M7 14H4M20 10h-3M20 14h-3",
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
