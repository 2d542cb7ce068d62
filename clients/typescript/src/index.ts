/**
 * Calls frpc services over WebSocket, with message types of protoc-gen-es. Start with {@link createChannel} and {@link createClient}.
 *
 * @module
 */
export type { Backoff } from "./backoff.js";
export type { CallOptions } from "./call.js";
export { Channel, type ChannelOptions, type ChannelState, createChannel } from "./channel.js";
export {
  type BiDiStreamingMethod,
  type Client,
  type ClientMethod,
  type ClientStreamingMethod,
  createClient,
  type ServerStreamingMethod,
  type UnaryMethod,
} from "./client.js";
export { Code, codeName, RpcError, type RpcErrorOptions } from "./error.js";
export type { InterceptedCall, Interceptor, NextCall } from "./interceptor.js";
export { Metadata, type MetadataInit, type MetadataValue } from "./metadata.js";
export { type HandlerContext, implement, type MethodImpl, type OfferedMethod, type OfferedService, type ServiceImpl } from "./service.js";
export type { WebSocketConstructor, WebSocketLike } from "./wire/socket.js";
