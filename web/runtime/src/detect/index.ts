/** Object detection: boxes in pictures. */

export {};
