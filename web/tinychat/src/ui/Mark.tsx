import type { JSX } from "preact";

/** A speech bubble with two eyes. */
export function Mark({ size, awake = true }: { size: "small" | "large"; awake?: boolean }): JSX.Element {
  return (
    <svg class={`mark mark-${size}${awake ? "" : " mark-asleep"}`} viewBox="0 0 48 48" aria-hidden="true">
      <path
        class="mark-bubble"
        d="M24 5c11.6 0 20 7.600 20 17.600S35.600 40.200 24 40.200c-1.900 0-3.700-.2-5.400-.6L9.800 43.600c-.9.4-1.800-.4-1.600-1.300l1.200-6.100C6 33 4 28.300 4 22.600 4 12.600 12.400 5 24 5z"
      />
      <rect class="mark-eye" x="16" y="17.500" width="4.500" height="10" rx="2.250" />
      <rect class="mark-eye" x="27.500" y="17.500" width="4.500" height="10" rx="2.250" />
    </svg>
  );
}
