/** Small pieces of browser behaviour that several components share. */

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";
import type { Theme } from "../store/settings";

/** A device with a mouse or trackpad: there a field may take focus without a keyboard popping up. */
export const FINE_POINTER = "(hover: hover) and (pointer: fine)";

/** Draws the component anew after every change of what is subscribed to. */
export function useChanges(source: { subscribe(listener: () => void): () => void }): void {
  const [, redraw] = useState(0);
  useEffect(() => source.subscribe(() => redraw((count) => count + 1)), [source]);
}

/** Esc stops what the page does, unless it closes a dialog. */
export function useEscape(stop: () => void): void {
  const latest = useRef(stop);
  latest.current = stop;
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent): void => {
      // An open dialog closes with Esc by itself.
      if (event.key !== "Escape" || event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]") !== null) return;
      latest.current();
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, []);
}

export function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const update = (): void => setMatches(list.matches);
    update();
    list.addEventListener("change", update);
    return () => list.removeEventListener("change", update);
  }, [query]);
  return matches;
}

/** Makes a field as high as its text, and anew when its width changes: a phone was turned, or the page took another layout. */
export function useFittedHeight(field: RefObject<HTMLTextAreaElement | null>, text: string): void {
  useLayoutEffect(() => {
    const element = field.current;
    if (element === null) return;
    const fit = (): void => {
      // What scrolls around it must not lose its place while it is measured.
      const around = element.parentElement?.style;
      if (around) around.minHeight = `${element.parentElement?.offsetHeight ?? 0}px`;
      element.style.height = "auto";
      element.style.height = `${element.scrollHeight + element.offsetHeight - element.clientHeight}px`; // with its border
      element.style.overflowY = element.scrollHeight > element.clientHeight + 1 ? "auto" : "hidden";
      if (around) around.minHeight = "";
    };
    fit();
    let width = element.clientWidth;
    const observer = new ResizeObserver(() => {
      if (element.clientWidth === width) return; // what changed is the height that it was given
      width = element.clientWidth;
      requestAnimationFrame(fit);
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [text, field]);
}

/** Puts the theme on the document; returns what is shown. */
export function useTheme(theme: Theme): "light" | "dark" {
  const systemDark = useMedia("(prefers-color-scheme: dark)");
  const shown = theme === "system" ? (systemDark ? "dark" : "light") : theme;
  useLayoutEffect(() => {
    const root = document.documentElement;
    root.dataset["theme"] = shown;
    const background = getComputedStyle(root).getPropertyValue("--bg").trim();
    document.querySelector("meta[name=theme-color]")?.setAttribute("content", background);
  }, [shown]);
  return shown;
}

/**
 * Keeps the page as tall as what is visible above a virtual keyboard. Browsers that resize the layout for the keyboard
 * need none of it; Safari on phones moves the page instead.
 */
export function useVisibleHeight(): void {
  useEffect(() => {
    const viewport = window.visualViewport;
    if (viewport === null) return;
    const root = document.documentElement;
    const update = (): void => {
      // While the reader has zoomed in, the visible part says nothing of the keyboard.
      if (viewport.scale > 1.01) return;
      const covered = window.innerHeight - viewport.height;
      if (covered > 80) {
        root.style.setProperty("--app-height", `${viewport.height}px`);
        root.dataset["keyboard"] = "";
        window.scrollTo(0, 0);
      } else {
        root.style.removeProperty("--app-height");
        delete root.dataset["keyboard"];
      }
    };
    update();
    viewport.addEventListener("resize", update);
    viewport.addEventListener("scroll", update);
    return () => {
      viewport.removeEventListener("resize", update);
      viewport.removeEventListener("scroll", update);
    };
  }, []);
}

/** Scrolls to the beginning: smoothly, unless the reader wants things to keep still. */
export function scrollToTop(element: HTMLElement | null): void {
  element?.scrollTo({ top: 0, behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "instant" : "smooth" });
}

const NEAR_END = 40;

export interface Following {
  scroller: RefObject<HTMLElement | null>;
  content: RefObject<HTMLDivElement | null>;
  /** False when the reader has scrolled up. */
  atEnd: boolean;
  jump(): void;
}

/**
 * While `active`, follows growing content until the reader scrolls up; starts again when the reader is back at the end.
 */
export function useFollowing(active: boolean): Following {
  const scroller = useRef<HTMLElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  const [atEnd, setAtEnd] = useState(true);

  const jump = useCallback((): void => {
    following.current = true;
    setAtEnd(true);
    const element = scroller.current;
    if (element !== null) element.scrollTop = element.scrollHeight;
  }, []);

  useEffect(() => {
    const element = scroller.current;
    if (element === null || content.current === null) return;
    if (!active) {
      element.scrollTop = 0;
      setAtEnd(true);
      return;
    }
    let lastTop = 0;
    const toEnd = (): void => {
      element.scrollTop = element.scrollHeight;
      lastTop = element.scrollTop;
    };
    following.current = true;
    toEnd();
    const onScroll = (): void => {
      const distance = element.scrollHeight - element.clientHeight - element.scrollTop;
      // A wheel or finger begins with a few pixels: followed on, it would be thrown back. What shrinks stays at its end.
      if (element.scrollTop < lastTop && distance > 1) following.current = false;
      else if (distance <= NEAR_END) following.current = true;
      lastTop = element.scrollTop;
      setAtEnd(following.current || distance <= NEAR_END);
    };
    const observer = new ResizeObserver(() => {
      if (following.current) toEnd();
      else onScroll();
    });
    observer.observe(content.current);
    observer.observe(element);
    element.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", onScroll);
    };
  }, [active]);

  return { scroller, content, atEnd, jump };
}

/** Copies text; also in pages without a secure context, where the clipboard API is missing. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "offscreen";
    area.setAttribute("aria-hidden", "true");
    const focused = document.activeElement;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (focused instanceof HTMLElement) focused.focus();
    return copied;
  }
}

/** `[copied, copy]`: `copied` is true for a moment after each copy. */
export function useCopy(): [boolean, (text: string) => void] {
  const [copied, setCopied] = useState(false);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = (text: string): void => {
    void copyText(text).then((done) => {
      if (!done) return;
      setCopied(true);
      clearTimeout(timer.current);
      timer.current = window.setTimeout(() => setCopied(false), 1600);
    });
  };
  return [copied, copy];
}
