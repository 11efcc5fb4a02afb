/** Sound as the numbers that an input takes: one channel, at a chosen rate. */

import { FeedError } from "./problem";

export interface Sound {
  samples: Float32Array;
  rate: number;
  seconds: number;
}

/** @throws FeedError for what the browser cannot decode */
export async function decodeSound(file: Blob, rate: number): Promise<Sound> {
  const bytes = await file.arrayBuffer();
  let decoded: AudioBuffer;
  try {
    // decoding resamples to the context's rate
    decoded = await new OfflineAudioContext(1, 1, rate).decodeAudioData(bytes);
  } catch {
    throw new FeedError("This is no sound that this browser can decode: WAV, MP3, or another that it plays.");
  }
  const samples = new Float32Array(decoded.length);
  for (let channel = 0; channel < decoded.numberOfChannels; channel++) {
    const given = decoded.getChannelData(channel);
    for (let i = 0; i < samples.length; i++) samples[i]! += given[i]! / decoded.numberOfChannels;
  }
  return { samples, rate: decoded.sampleRate, seconds: decoded.duration };
}

/** As many samples as go in, from a place on; silence behind their end. */
export function windowOf({ samples }: Sound, length: number, from: number): Float32Array {
  const values = new Float32Array(length);
  values.set(samples.subarray(from, from + length));
  return values;
}
