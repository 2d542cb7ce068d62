//! The server of a replay: channels to it, and its methods.

use std::{collections::HashMap, sync::Arc};

use frpc::{Channel, Metadata, Method, codec::Format};
use frpc_record::{RecordedCall, Recording};

use crate::{
    connect::ConnectOptions,
    failure::{CommandError, Result},
    invocation::{call_failure, is_json_rpc, leaked},
    messages::DynamicCodec,
    schema::{ReflectionError, SchemaSources, ServerSchema},
};

/// A method of the recording and of the server.
#[derive(Clone, Debug)]
pub(crate) struct ReplayMethod {
    pub(crate) method: &'static Method,
    pub(crate) channel: Channel,
    pub(crate) request: MessagePair,
    pub(crate) response: MessagePair,
}

/// The codecs of one message type.
#[derive(Clone, Debug)]
pub(crate) struct MessagePair {
    pub(crate) recorded: DynamicCodec,
    pub(crate) replayed: DynamicCodec,
}

/// The methods of a recording by their path and recorded format.
#[derive(Debug)]
pub(crate) struct ReplayTarget {
    methods: HashMap<(String, Format), ReplayMethod>,
    pub(crate) schema: Option<ServerSchema>,
    /// `false` for plain fRPC, and for JSON-RPC over other connections than HTTP.
    pub(crate) has_metadata: bool,
}

impl ReplayTarget {
    /// Connects, and prepares all methods of the recording.
    pub(crate) async fn prepare<'a>(
        recording: &Recording,
        calls: impl IntoIterator<Item = &'a RecordedCall>,
        address: &str,
        connect: &ConnectOptions,
        sources: &SchemaSources,
        metadata: &Metadata,
    ) -> Result<Self> {
        let channel = connect.connect(address, Format::Proto).await?;
        let format = connect.format_of(&channel).await?;
        let schema = schema(recording, &channel, address, sources, metadata).await?;
        let has_metadata = format != Format::Polyglot && (!is_json_rpc(address) || address.starts_with("jsonrpc+http"));
        let mut target = Self::new(schema, has_metadata);
        // Over HTTP, a call with JSON needs a separate channel.
        let mut json_channel = None;
        for call in calls {
            let key = (call.path(), call.format);
            if target.methods.contains_key(&key) {
                continue;
            }
            let is_described = target.schema.as_ref().is_some_and(|schema| schema.method(&key.0).is_ok());
            let (channel, format) = if call.format == Format::Json && !is_described && format == Format::Proto {
                let channel = match &json_channel {
                    Some(channel) => channel,
                    None => json_channel.insert(connect.connect(address, Format::Json).await?),
                };
                (channel.clone(), Format::Json)
            } else {
                (channel.clone(), format)
            };
            target.add(call, channel, format)?;
        }
        Ok(target)
    }

    pub(super) fn new(schema: Option<ServerSchema>, has_metadata: bool) -> Self {
        Self { methods: HashMap::new(), schema, has_metadata }
    }

    /// Prepares the method of a call.
    pub(super) fn add(&mut self, call: &RecordedCall, channel: Channel, format: Format) -> Result<()> {
        let method = self.method(call, channel, format)?;
        self.methods.insert((call.path(), call.format), method);
        Ok(())
    }

    fn method(&self, call: &RecordedCall, channel: Channel, format: Format) -> Result<ReplayMethod> {
        let path = call.path();
        let found = self.schema.as_ref().and_then(|schema| Some((schema, schema.method(&path).ok()?)));
        let needs_layouts = [call.format, format].contains(&Format::Polyglot);
        let layouts = match &found {
            Some((schema, found)) if needs_layouts => Some(Arc::new(schema.layouts(found, None)?)),
            _ => None,
        };
        if found.is_none() && call.format != format {
            return Err(CommandError::new(format!(
                "the recorded messages of {path} are {}, but the server takes {format}, and there is no schema of them",
                call.format
            ))
            .with_try("--proto FILE or --descriptor-set FILE"));
        }
        let codec = |shape: Option<_>, format| DynamicCodec {
            shape,
            format,
            layouts: layouts.clone().filter(|_| format == Format::Polyglot),
        };
        let pair = |shape: Option<prost_reflect::MessageDescriptor>| MessagePair {
            recorded: codec(shape.clone(), call.format),
            replayed: codec(shape, format),
        };
        let [request, response] = match &found {
            Some((_, found)) => [pair(Some(found.input())), pair(Some(found.output()))],
            None => [pair(None), pair(None)],
        };
        let service = Some(&*call.service).filter(|service| !service.is_empty());
        let method = leaked(service, &call.method, call.kind, call.operation);
        Ok(ReplayMethod { method, channel, request, response })
    }

    /// Returns the method of a call that was prepared.
    pub(crate) fn method_of(&self, call: &RecordedCall) -> Option<&ReplayMethod> {
        self.methods.get(&(call.path(), call.format))
    }
}

/// Returns the schema of the files, or else of the recording, or else of the server.
async fn schema(
    recording: &Recording,
    channel: &Channel,
    address: &str,
    sources: &SchemaSources,
    metadata: &Metadata,
) -> Result<Option<ServerSchema>> {
    if sources.is_empty() && !recording.schemas().is_empty() {
        return ServerSchema::of_descriptors(recording.schemas(), "the schema of the recording").map(Some);
    }
    if sources.is_empty() && is_json_rpc(address) {
        return Ok(None);
    }
    match sources.schema(channel, metadata, None).await {
        Ok(schema) => Ok(Some(schema)),
        Err(ReflectionError::Unsupported(_) | ReflectionError::Plain) => Ok(None),
        Err(ReflectionError::Failed(failure)) => Err(failure),
        Err(ReflectionError::Call(status)) => Err(call_failure(status, None)),
    }
}
