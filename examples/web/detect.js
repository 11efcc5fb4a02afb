// Objects in a picture. Put it beside the model/ that `tinyweb export detect` wrote.
import { element, fail, say, showProgress } from "./common.js";
import { load } from "./model/model.js";

const [file, picture, list] = ["file", "picture", "boxes"].map(element);

try {
  const detector = await load({ onProgress: showProgress });
  say(`Ready: ${detector.info.model} on ${detector.info.backend} (${detector.info.adapter}).`);
  file.disabled = false;

  file.addEventListener("change", async () => {
    if (!file.files[0]) return;
    try {
      const bitmap = await createImageBitmap(file.files[0]);
      [picture.width, picture.height, picture.hidden] = [bitmap.width, bitmap.height, false];
      const context = picture.getContext("2d");
      context.drawImage(bitmap, 0, 0);
      const found = await detector.detect(bitmap, { confidence: 0.3 });
      context.lineWidth = Math.max(2, bitmap.width / 200);
      context.strokeStyle = "red";
      for (const {
        box: [x1, y1, x2, y2],
      } of found)
        context.strokeRect(x1, y1, x2 - x1, y2 - y1);
      list.replaceChildren(
        ...found.map(({ label, score }) => {
          const item = document.createElement("li");
          item.textContent = `${label}, ${Math.round(100 * score)} %`;
          return item;
        }),
      );
      say(`${found.length} found in ${Math.round(found.times.totalMs)} ms.`);
    } catch (error) {
      fail(error);
    }
  });
} catch (error) {
  fail(error);
}
