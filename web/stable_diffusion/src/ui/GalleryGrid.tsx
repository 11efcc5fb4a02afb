/** All pictures on this device, newest first. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Studio } from "../app/studio";
import type { Picture } from "../store/gallery";

/** Shown at first, and more of with each asking: a thousand pictures at once would be slow. */
const PAGE = 48;

function Thumb({ picture, current, onOpen }: { picture: Picture; current: boolean; onOpen: () => void }): JSX.Element {
  const [url, setUrl] = useState("");
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([picture.thumb], { type: "image/png" }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [picture.id]);
  return (
    <li>
      <button type="button" class="thumb" data-testid="picture" title={picture.recipe.prompt} aria-current={current} onClick={onOpen}>
        {url !== "" && <img src={url} alt={picture.recipe.prompt} />}
      </button>
    </li>
  );
}

export function GalleryGrid({ studio, onOpen }: { studio: Studio; onOpen: () => void }): JSX.Element | null {
  const { gallery, shown, job } = studio.state;
  const [count, setCount] = useState(PAGE);
  if (gallery.length === 0) return null;
  return (
    <section class="gallery" aria-labelledby="gallery-title">
      <h2 id="gallery-title" class="part-title">
        On this device
      </h2>
      <ul data-testid="gallery">
        {gallery.slice(0, count).map((picture) => (
          <Thumb
            key={picture.id}
            picture={picture}
            current={job === null && shown?.id === picture.id}
            onOpen={() => {
              void studio.open(picture);
              onOpen();
            }}
          />
        ))}
      </ul>
      {gallery.length > count && (
        <button type="button" class="button" data-testid="more" onClick={() => setCount(count + PAGE)}>
          Show more of {gallery.length}
        </button>
      )}
    </section>
  );
}
