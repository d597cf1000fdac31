/** One camera for the whole page: its picture stands in one place at a time. */

export class Camera {
  constructor() {
    this.video = document.createElement("video");
    Object.assign(this.video, { muted: true, playsInline: true, autoplay: true });
    this.video.setAttribute("aria-label", "Camera");
  }

  /** Show the camera inside an element; `onClose` is told when it goes elsewhere or off. */
  async open(place, onClose) {
    this.close();
    if (!navigator.mediaDevices) {
      throw new Error("A camera needs a secure page: open this file itself, or run pmeta page MODEL --open.");
    }
    this._onClose = onClose;
    place.append(this.video);
    try {
      const video = { facingMode: "environment", width: { ideal: 640 }, height: { ideal: 480 } };
      const stream = await navigator.mediaDevices.getUserMedia({ video, audio: false });
      if (this._onClose !== onClose) return stream.getTracks().forEach((track) => track.stop()); // closed meanwhile
      this._stream = stream;
      this.video.srcObject = stream;
      await this.video.play();
    } catch (error) {
      if (this._onClose === onClose) this.close();
      throw new Error(REASONS[error.name] ?? `The camera does not work (${error.message}). Add files instead.`);
    }
  }

  get isOn() { return Boolean(this._stream); }

  /** What it sees now, or null as long as there is nothing. */
  async frame() {
    return this.isOn && this.video.videoWidth ? createImageBitmap(this.video) : null;
  }

  close() {
    this._stream?.getTracks().forEach((track) => track.stop());
    this._stream = undefined;
    this.video.srcObject = null;
    this.video.remove();
    const told = this._onClose;
    this._onClose = undefined;
    told?.();
  }
}

const REASONS = {
  NotAllowedError: "The camera was not allowed: allow it beside the page's address, or add files instead.",
  NotFoundError: "There is no camera here: add files instead.",
  NotReadableError: "The camera is in use by another program: close that one, or add files instead.",
};
