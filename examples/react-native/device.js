// The device's files and hashes by expo-file-system (SDK 54) and react-native-quick-crypto. Never run on a phone.
// @ts-nocheck: both are installed in apps only
import { Directory, File } from "expo-file-system";
import { createHash } from "react-native-quick-crypto";

/** @type {import("./bundle.js").Device} */
export const device = {
  async size(path) {
    const file = new File(path);
    return file.exists ? file.size : null;
  },
  async read(path, start, length) {
    return withHandle(path, (handle) => {
      handle.offset = start;
      return handle.readBytes(length);
    });
  },
  async append(path, bytes) {
    const file = new File(path);
    if (!file.exists) file.create({ intermediates: true });
    return withHandle(path, (handle) => {
      handle.offset = handle.size;
      handle.writeBytes(bytes);
    });
  },
  async move(path, to) {
    new File(path).move(new File(to));
  },
  async remove(path) {
    for (const entry of [new File(path), new Directory(path)]) if (entry.exists) return entry.delete();
  },
  sha256() {
    const hash = createHash("sha256");
    return { update: (bytes) => void hash.update(bytes), digest: () => hash.digest("hex") };
  },
  fetch: (address, options) => fetch(address, options),
};

function withHandle(path, use) {
  const handle = new File(path).open();
  try {
    return use(handle);
  } finally {
    handle.close();
  }
}
