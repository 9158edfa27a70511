// Figures and names for people: units, times, hostile text.

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const RATE_UNITS = ["B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"];
const NOTHING = "–";

/** Three significant digits, without zeros at the end. */
function digits(value) {
  const size = Math.abs(value);
  return String(Number(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)));
}

function scaled(value, base, units) {
  if (value == null || !Number.isFinite(value)) return NOTHING;
  let unit = 0;
  let size = Math.abs(value);
  while (size >= base - 0.5 && unit < units.length - 1) {
    size /= base;
    unit += 1;
  }
  return `${value < 0 ? "−" : ""}${unit === 0 ? Math.round(size) : digits(size)} ${units[unit]}`;
}

/** 1536 → "1.5 KiB". */
function bytes(value) {
  return scaled(value, 1024, BYTE_UNITS);
}

/** Bytes per second, as on the command line: 1500000 → "1.5 MB/s". */
function rate(value) {
  return scaled(value, 1000, RATE_UNITS);
}

/** 0.00031 → "310 µs"; 4000 → "1 h 7 min". */
function duration(value) {
  if (value == null || !Number.isFinite(value)) return NOTHING;
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (size === 0) return "0 s";
  if (size < 0.9995e-6) return `${sign}${digits(size * 1e9)} ns`;
  if (size < 0.9995e-3) return `${sign}${digits(size * 1e6)} µs`;
  if (size < 0.9995) return `${sign}${digits(size * 1e3)} ms`;
  if (size < 119.5) return `${sign}${digits(size)} s`;
  const minutes = Math.round(size / 60);
  if (minutes < 120) return `${sign}${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${sign}${hours} h ${minutes % 60} min`;
  return `${sign}${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Seconds lost per second: 0.25 → "250 ms/s"; above 1 there are several writers. */
function lostRate(value) {
  if (value == null || !Number.isFinite(value)) return NOTHING;
  return value === 0 ? "0" : `${duration(value)}/s`;
}

/** 0.042 → "4.2 %". */
function percent(value) {
  if (value == null || !Number.isFinite(value)) return NOTHING;
  const hundredths = value * 100;
  return `${Math.abs(hundredths) < 0.005 ? "0" : digits(hundredths).replace("-", "−")} %`;
}

/** 1234567 → "1 234 567". */
function count(value) {
  if (value == null || !Number.isFinite(value)) return NOTHING;
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** A time in the viewer's time zone. */
function clock(seconds, withSeconds = true) {
  const date = new Date(seconds * 1000);
  const pad = (part) => String(part).padStart(2, "0");
  const text = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
  return withSeconds ? `${text}:${pad(date.getSeconds())}` : text;
}

/** "4 GiB", "1M", "65536" → bytes; NaN if invalid. Units are binary, as those of cawl-cli. */
function parseBytes(text) {
  const parts = /^\s*(\d+(?:\.\d+)?)\s*([kmgtp]?)(?:i?b)?\s*$/i.exec(text);
  if (!parts) return NaN;
  const power = "kmgtp".indexOf(parts[2].toLowerCase() || " ") + 1;
  return Math.round(Number(parts[1]) * 1024 ** power);
}

/**
 * A name as text that cannot deceive: control, format and bidirectional characters, with which a path could
 * pretend to be another, are told by their number.
 */
function printable(text) {
  return String(text).replace(
    /[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}\ufffd]/gu,
    (odd) => `\\u{${odd.codePointAt(0).toString(16)}}`,
  );
}

const STATES = {
  free: { name: "Free", long: "writers pass freely" },
  flush: { name: "Flush", long: "the kernel writes back in the background" },
  throttle: { name: "Throttle", long: "writers are held back" },
};
const PHASES = ["free", "flush", "throttle"];
const CALL_STATES = ["free", "flush", "throttle", "sync", "buffered"];

