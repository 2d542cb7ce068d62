import { Reader, text, utf8, Writer } from "./bytes.js";
import { decodeHelloBody, encodeHelloBody, type Hello } from "./hello.js";

/** The kinds of CONTROL frames. */
const ControlKind = { Hello: 1, Credit: 2, GoAway: 3, Cancel: 4, Cancelled: 5 } as const;

/** The content of a CONTROL frame. The frame id is the id of the affected stream or packet. */
export type Control =
  | { readonly kind: "hello"; readonly hello: Hello }
  | { readonly kind: "credit"; readonly len: number }
  | { readonly kind: "goaway"; readonly code: number; readonly text: string }
  | { readonly kind: "cancel"; readonly operation: number }
  | { readonly kind: "cancelled"; readonly operation: number };

/** Decodes a CONTROL frame. Returns `undefined` for unknown kinds, which are ignored. */
export function decodeControl(content: Uint8Array): Control | undefined {
  if (content.length === 0) {
    return undefined;
  }
  const body = new Reader(content);
  switch (body.u8()) {
    case ControlKind.Hello:
      return { kind: "hello", hello: decodeHelloBody(body) };
    case ControlKind.Credit:
      return { kind: "credit", len: body.u32() };
    case ControlKind.GoAway:
      return { kind: "goaway", code: body.u8(), text: text(body.rest()) };
    case ControlKind.Cancel:
      return { kind: "cancel", operation: body.u16() };
    case ControlKind.Cancelled:
      return { kind: "cancelled", operation: body.u16() };
    default:
      return undefined;
  }
}

export function encodeHello(hello: Hello): Uint8Array {
  return new Writer(256).u8(ControlKind.Hello).raw(encodeHelloBody(hello)).finish();
}

export function encodeCredit(len: number): Uint8Array {
  return new Writer(5).u8(ControlKind.Credit).u32(len).finish();
}

export function encodeGoAway(code: number, why: string): Uint8Array {
  return new Writer().u8(ControlKind.GoAway).u8(code).raw(utf8(why)).finish();
}

export function encodeCancel(operation: number): Uint8Array {
  return new Writer(3).u8(ControlKind.Cancel).u16(operation).finish();
}

export function encodeCancelled(operation: number): Uint8Array {
  return new Writer(3).u8(ControlKind.Cancelled).u16(operation).finish();
}
