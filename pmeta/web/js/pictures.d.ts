/** Types of pictures.js: pictures as `pmeta adapt` takes them. */

/** A picture whose parts can be read as RGBA bytes. */
export interface Picture {
  width: number;
  height: number;
  rows(x: number, y: number, width: number, height: number): Uint8Array | Uint8ClampedArray;
}

/** Read a file or a frame as one sample of shape (channels, height, width). In a browser, also in its Workers. */
export declare function readPicture(source: ImageBitmapSource, shape: number[]): Promise<Uint8Array>;

/** Fit a picture that is decoded already. */
export declare function fitPicture(picture: Picture, shape: number[]): Uint8Array;
